/** Scripts that make each shell ask `granary __complete` how a line may go on, and offer files otherwise. */
export const completionScripts = {
  bash: `# Load it by: source <(granary completion bash)
_granary() {
  local IFS=$'\\n'
  COMPREPLY=($(granary __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _granary granary
`,
  zsh: `#compdef granary
# Load it by: source <(granary completion zsh)
_granary() {
  local -a candidates
  candidates=("\${(@f)$(granary __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n \${candidates[1]} ]]; then compadd -a candidates; else _files; fi
}
compdef _granary granary
`,
  fish: `# Load it by: granary completion fish | source
function __granary_complete
  set -l words (commandline -opc)
  granary __complete -- $words[2..] (commandline -ct) 2>/dev/null
end
complete -c granary -a '(__granary_complete)'
`,
} as const;

export type Shell = keyof typeof completionScripts;
export const shells = Object.keys(completionScripts) as Shell[];
