const plain = String.raw`
a| |a (|a) () (?:) a||b (?i) (?) (?i)a(?-i)b a(?i)b|c (a(?i)b)c (?i:a)b (?s). (?s-s). ^$ (?m)^$ (?m)^a$
(?m)^abc$ ^a a$ a\z \Aa $a a^ (?m)a^ (?m)$\n (?m)$\n^ \n$ ^* $? (^a)* (^|a)b (a|$) (?:^a|b$)+ (?m)(?:^|b)+a
(\A|b)*a (a\z|b)* ^^^a (?m)^^a$$ \A\z (?m)\A^\z$ \b \B \ba a\b \Ba a\B \b\b \b\B ^\b \b$ ^\B$ (\b)* (\ba)+
(\b|a)+b (\B|b)*a \bfoo\b \bfoo\b.*\bbar\b (?:\bfoo|bar\b) [\b] \bfoo\b|\bbar\b a* a+ a? a*? a+? a?? a** a*+ a+*
a?{2} a{2}{3} (a*)* (a*)+ (a+)? (a|b*)*c * +a ? (*a) |* a{ a{} a{,2} a{2 a{2, a{2,1} a{01} a{1,02} a{0} a{0,}
a{1000} a{1001} a{0,1001} a{999999999} { } {2} a{255} a{256} a{300} ^a{300}$ ^a{299}$ ^a{0,299}$ ^a{0,300}$
^a{256,}$ ^a{600,}$ ^a{601,}$ ^a{255,600}$ ^a{10,599}$ ^(?:ab?){300}$ (a{30}){33} (a{30}){34} ((a{10}){10}){11}
(a{0}){1000} (a{1000}){0} (a{2,}){500} (a{2,}){501} a(?i)* a*(?i)* \Qab\E* \Q\E* a\Q\E* a*\Q\E* \Q \Qa \E a\E
\Q\\E \Q[\E [a [ ] [] []] [^]] []a] [^] [a-] [-a] [a-b-c] [b-a] [a-\d] [\d-a] [\w-.] [--.] [a\]b] [\]] [\n]
[^\n] [^a] [^\d] [\D] [^\D] [\d\D] [^\d\D] [\s\S] [^\x00-\x{10FFFF}] [^\x{1}-\x{10FFFF}]a [\^a] [a^] [$.]
[[:alpha:]] [[:^alpha:]] [^[:alpha:]] [^[:^alpha:]] [[:foo:]] [[:alpha] [:alpha:] [[.a.]] [[=a=]] [[:word:]]+
[[:ascii:]] [[:blank:]] [[:cntrl:]] [[:alnum:]] [[:graph:]] [[:lower:]] [[:print:]] [[:punct:]] [[:space:]]
[[:upper:]] [[:xdigit:]] (?i)[[:upper:]] (?i)[[:^upper:]] [[:Alpha:]] \d \s \w \D \S \W (?i)\w (?i)\W (?i)[\W]
(?i)[^\w] (?i)[^k] (?i)[^a-z] (?i)[j-l] (?i)[K] (?i)k (?i)K (?i)s (?i)ss (?i)i (?i)[^\x{212a}] (?i)\x4b \a \f \n
\r \t \v \e \x \x4 \x41 \x{41} \x{} \x{110000} \x{1F600} \xg \x{4g} \0 \00 \101 \1 \12 \8 \18 \777 \_ \- \C \Z
\G \K \R \X \h \N \y \m \M \cA \" ( ) (a a) (a)) ((a) (? (?: (?:a (?i (?i: (?z) (?i-) (?-) (?--i) (?i-s)A.
(?-i-s) (?ii)a (?i (?P (?P< (?P<a (?P<a> (?P<a>a) (?<a>a) (?<a>a)(?<a>b) (?P<a>a)(?<b>b) (?<>a) (?<1>a) (?P=a)
(?P>a) (?=a) (?!a) (?<=a) (?<!a) (?>a) (?#a) (?|a) (?&a) (?R) (?1) (?'a'a) (?P<a>a)\k<a> \p \pL \PL \p{L} \P{L}
\p{^L} \P{^L} \p{ \p{} \p{Greek} \p{Foo} \p{Any} \p{Lu} (?i)\p{Lu} (?i)\P{Lu} (?i)[^\p{Lu}] [\pL\pN] [\p{Foo}] .
(?s). (?s)^.$ ^.$ a.b (?s)a.b .* ^.*$ (?m)^.*$ (?s)^.+$ (?U)a* (?U)a*? ***:a ***=a (?w)a a\.b \x{D800}
[\x{D7FF}-\x{E000}] \x00 a\x00?
`;

/** Expressions, valid and not, at the edges of RE2's syntax and where engines differ. */
export const hardExpressions: readonly string[] = [
  ...plain.trim().split(/\s+/),
  '',
  'é\\b',
  '\\bé',
  '(?i)\\bſ',
  '\\b😀',
  '\\Qa\\',
  '(?i)\u212a',
  '(?i)ſ',
  '(?i)ß',
  '(?i)ẞ',
  '(?i)İ',
  '(?i)ı',
  '(?i)σ',
  '(?i)ς',
  '(?i)école',
  '(?i)[à-ÿ]',
  '(?i)ǆ',
  '(?i)ǅ',
  '(?i)μ',
  '(?i)µ',
  '(?i)Ω',
  '(?i)å',
  '\\ ',
  '\\é',
  '\\😀',
  '\\',
  'a\\',
  '\\u0041',
  '\\\n',
  '(?<a b>a)',
  '(?<é>a)',
  '\\pé',
];

/** Texts that tell their meanings apart. */
export const hardTexts: readonly string[] = [
  '',
  'a',
  'A',
  'ab',
  'abc',
  'abcabc',
  'aaa',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  'a\nb',
  'a\n',
  '\na',
  '\n',
  'ab\nabc\n',
  'foo bar',
  'foobar',
  ' foo ',
  'a_b',
  'a-b',
  'é',
  'aé',
  'éa',
  'É',
  'ÉCOLE',
  'école',
  'k',
  'K',
  '\u212a',
  's',
  'S',
  'ſ',
  'ß',
  'ẞ',
  'ss',
  'SS',
  'i',
  'I',
  'İ',
  'ı',
  'σ',
  'ς',
  'Σ',
  '😀',
  'a😀b',
  '\ud7ff',
  '\ue000',
  '\u{10ffff}',
  '\u2028',
  '\u00a0',
  '\u000b',
  '\t',
  '\r\n',
  '[',
  ']',
  '{',
  '}',
  '{2}',
  'a{',
  'a{,2}',
  'x{2',
  '(',
  ')',
  '.',
  '*',
  '+',
  '?',
  '|',
  '^',
  '$',
  '\\',
  '/',
  '-',
  '--',
  '.-.',
  '***:a',
  '(?w)a',
  ':alpha:',
  '[:alpha:]',
  'abc.def',
  'ǅ',
  'ǆ',
  'Ǆ',
  'µ',
  'μ',
  'Ω',
  'Ω',
  'å',
  'Å',
  'ﬅ',
  'ﬆ',
];
