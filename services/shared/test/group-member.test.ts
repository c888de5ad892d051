import { kafkaTopics } from '@granary/shared/bus/topics';
import type { GroupOptions, Member } from '@granary/shared/kafka/group-member';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { describeWith, kafkaForTests } from '@granary/testing/stack';
import { kafkaBus } from './support/bus-world';

jest.setTimeout(limitMs(120_000));

/** The group waits twice as long for members that have to join again: longer than the 10 s of a stop. */
const sessionTimeoutMs = 8_000;
const messageCount = 120;

describeWith(describe, 'kafka')('a member of a consumer group', () => {
  const members: Member[] = [];
  afterEach(() => Promise.all(members.splice(0).map((member) => member.stop())));

  test('that is stopped while it joins leaves all partitions to the others, also when the join takes longer than the stop', async () => {
    const { kafka, prefix } = await kafkaBus(await kafkaForTests());
    const [topic = ''] = kafkaTopics(prefix);
    const sender = await kafka.openSender();
    const send = (from: number, count: number) =>
      sender.send(
        Array.from({ length: count }, (_, at) => {
          const key = String(from + at);
          return { topic, key, value: Buffer.from(key), headers: {} };
        }),
      );
    const join = (own: Pick<GroupOptions, 'onJoined' | 'onMessages'>) => {
      const options = { groupId: `${prefix}.test`, topics: [topic], messagesMax: 10, sessionTimeoutMs };
      const member = kafka.joinGroup({ ...options, loadOffsets: () => Promise.resolve([]), ...own });
      members.push(member);
      return member;
    };

    const received = new Set<string>();
    let isBusy = false;
    let isRebalancing = false;
    let release = () => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    join({
      onJoined: () => {},
      onMessages: async (messages, _, isAssigned) => {
        // It joins again only after this, so that until then the group waits for it, and so does a member that joins.
        if (messages.some(({ key }) => key === '0') && !isRebalancing) {
          isBusy = true;
          await eventually(() => !isAssigned());
          isRebalancing = true;
          await released;
          return false;
        }
        for (const { key } of messages) received.add(key);
        return true;
      },
    });
    await send(0, 1);
    await eventually(() => isBusy);
    let joined = 0;
    const second = join({ onJoined: () => joined++, onMessages: () => Promise.resolve(false) });
    await eventually(() => isRebalancing);
    await second.stop();
    await eventually(() => joined > 0);

    release();
    await send(1, messageCount - 1);
    await eventually(() => received.size === messageCount);
    await sender.close();
  });
});
