/** The only style of the page; the Content-Security-Policy contains its hash. */
export const style = `
:root {
  color-scheme: light dark;
  --ground: #fff; --panel: #f5f6f8; --line: #dfe2e7; --text: #1b2026; --quiet: #5a6472; --link: #0b57b4;
  --get: #10684a; --post: #0b57b4; --put: #8a4b00; --delete: #b3202a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171b; --panel: #1d2127; --line: #333a43; --text: #e3e7ec; --quiet: #a0abb9; --link: #7db4ff;
    --get: #5fd1a2; --post: #7db4ff; --put: #f0b35c; --delete: #ff8f8f;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body {
  margin: 0; background: var(--ground); color: var(--text); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif;
}
a { color: var(--link); text-decoration: none; }
p a, td a, a:hover, a:focus { text-decoration: underline; }
.skip { position: absolute; left: -100vw; padding: 0.5rem 1rem; background: var(--ground); }
.skip:focus { left: 1rem; top: 1rem; z-index: 1; }
main:focus { outline: none; }
code, pre { font: 0.875em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace; }
code { overflow-wrap: anywhere; }
h1, h2, h3, h4 { line-height: 1.25; margin: 0; }
h1 small { color: var(--quiet); font-weight: normal; font-size: 1rem; }
h2 { font-size: 1.5rem; margin-top: 3.5rem; padding-bottom: 0.4rem; border-bottom: 2px solid var(--line); }
h3 { font-size: 1.15rem; }
h3 a { color: inherit; }
h4 { font-size: 0.875rem; color: var(--quiet); margin: 1.25rem 0 0.35rem; }
p { margin: 0.5rem 0; max-width: 46rem; }
nav { padding: 1.5rem; background: var(--panel); border-right: 1px solid var(--line); font-size: 0.875rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav > ul > li { margin-bottom: 1.1rem; }
nav a { min-height: 1.5rem; }
nav > ul > li > a { display: inline-block; color: var(--text); font-weight: 600; }
nav li li a { display: flex; gap: 0.5rem; padding: 0.2rem 0; color: var(--quiet); line-height: 1.35; }
nav .method { flex: 0 0 3.4rem; font-size: 0.75rem; line-height: 1.5; }
main { padding: 2rem 2.5rem 6rem; max-width: 66rem; min-width: 0; }
article { margin-top: 2.25rem; padding-top: 0.25rem; }
article + article { border-top: 1px solid var(--line); padding-top: 2rem; }
article:target h3 { box-shadow: -0.75rem 0 var(--ground), -1rem 0 var(--link); }
.endpoint { margin: 0.6rem 0; padding: 0.45rem 0.75rem; background: var(--panel); border-radius: 6px; max-width: none; }
.quiet { color: var(--quiet); font-size: 0.875rem; }
.method { font-weight: 700; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.get { color: var(--get); } .post { color: var(--post); }
.put, .patch { color: var(--put); } .delete { color: var(--delete); }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; }
th { text-align: left; color: var(--quiet); font-weight: 600; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { width: 32%; }
th:nth-child(2), td:nth-child(2) { width: 26%; }
.responses th:first-child, .responses td:first-child { width: 6rem; }
.responses th:nth-child(2), .responses td:nth-child(2) { width: auto; }
.responses td:nth-child(3), .responses th:nth-child(3) { width: 30%; }
td span { color: var(--quiet); }
pre { margin: 0; padding: 0.75rem; background: var(--panel); border-radius: 6px; overflow-x: auto; }
@media (min-width: 60rem) {
  body { display: grid; grid-template-columns: 21rem minmax(0, 1fr); }
  nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; }
}
@media (max-width: 59.99rem) {
  nav { border: 0; border-bottom: 1px solid var(--line); padding: 1rem; }
  nav > ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; }
  nav > ul > li { margin: 0; }
  nav li ul { display: none; }
  main { padding: 1.25rem 1rem 4rem; }
}
@media (max-width: 40rem) {
  thead { display: none; }
  tr { display: block; padding: 0.5rem 0; border-bottom: 1px solid var(--line); }
  .fields td, .fields td:first-child, .fields td:nth-child(2) { display: block; width: auto; border: 0; padding: 0; }
  .responses tr { display: flex; gap: 0.75rem; flex-wrap: wrap; }
  .responses td, .responses td:first-child, .responses td:nth-child(3) { border: 0; padding: 0; width: auto; }
  .responses td:nth-child(2) { flex: 1 1 60%; }
}
@media print { nav, .skip { display: none; } body { display: block; } pre { white-space: pre-wrap; } }
`;
