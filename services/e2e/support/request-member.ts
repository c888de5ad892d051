/** What a member of a request is for: nothing but what is `other` may be switched off by null or by an empty value. */
export type MemberKind = 'amount' | 'limit' | 'condition' | 'filter' | 'other';

/**
 * What an empty value of a member means: it is refused, is as if the member was left out, or is a value like others.
 */
export type EmptyMeaning = 'refused' | 'absent' | 'value';

export interface RequestMember {
  kind: MemberKind;
  /** What null, `{}`, `[]` and `""` mean in a body; what an empty text means in a URL. */
  meanings: EmptyMeaning[];
  /** Why an empty value of what is not `other` is accepted. */
  because: string | undefined;
}

const meaningOf: Readonly<Record<string, EmptyMeaning>> = { '-': 'refused', a: 'absent', v: 'value' };

const ofKind =
  (kind: MemberKind) =>
  (meanings: string, because?: string): RequestMember => ({
    kind,
    meanings: [...meanings].map((letter) => meaningOf[letter]!),
    because,
  });

export const amount = ofKind('amount');
export const limit = ofKind('limit');
export const condition = ofKind('condition');
export const filter = ofKind('filter');
export const other = ofKind('other');
