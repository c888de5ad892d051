import { wrongConfig } from '@granary/shared/config';
import { readSecret } from '@granary/shared/trust/setting-file';

/** The nodes of networks, by the CAIP-2 names of the networks. */
export type RpcUrls = ReadonlyMap<string, readonly string[]>;

type RpcUrlsSettings<Name extends string> = { readonly [K in Name | `${Name}_FILE`]?: string | undefined };

const nodesMax = 10;

/** A setting with the nodes of networks of one kind: `eip155:84532=https://a,eip155:84532=https://b`. */
export class RpcUrlsSetting<Name extends string> {
  private readonly entry: RegExp;
  readonly rule: string;

  constructor(
    readonly name: Name,
    /** The pattern of CAIP-2 names of these networks. */
    network: string,
    kind: string,
    example: string,
  ) {
    this.entry = new RegExp(`^(${network})=(https?://\\S+)$`);
    this.rule =
      `${kind} with http:// or https:// URLs of their nodes are expected, as ${example}=https://…, separated by commas, ` +
      `a network once for each of its nodes, ${nodesMax} at most`;
  }

  /** The nodes in a configuration; empty when it names none. Throws a ConfigError when the file with them is wrong. */
  in(config: RpcUrlsSettings<Name>): RpcUrls {
    const urls = this.read(readSecret(config, this.name) ?? '');
    if (!urls) throw wrongConfig([[`${this.name}_FILE`, this.rule]]);
    return urls;
  }

  isValid(text: string): boolean {
    return this.read(text) !== undefined;
  }

  private read(text: string): RpcUrls | undefined {
    const urls = new Map<string, string[]>();
    for (const entry of text === '' ? [] : text.split(',')) {
      const [, network, url] = this.entry.exec(entry.trim()) ?? [];
      if (url === undefined || !URL.canParse(url)) return undefined;
      const nodes = urls.get(network!) ?? [];
      if (nodes.includes(url) || nodes.length === nodesMax) return undefined;
      urls.set(network!, [...nodes, url]);
    }
    return urls;
  }
}
