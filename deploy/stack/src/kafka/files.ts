import type { KafkaCredentials } from './scram';

export const kafkaVersion = '4.3.1';

/** The ports and the data directory of a broker. */
export interface BrokerPlace {
  port: number;
  controllerPort: number;
  /** The host on which the broker listens for clients, 127.0.0.1 by default. */
  listenHost?: string;
  /** The host by which clients reach the broker, 127.0.0.1 by default. */
  advertisedHost?: string;
  /** Folder, relative to the broker's working directory. */
  data: string;
  credentials: KafkaCredentials;
}

/** A small heap and a quick start: brokers run for a test run or a day of development. */
export const jvmOptions = [
  '-Xms192m',
  '-Xmx192m',
  '-XX:+UseSerialGC',
  '-XX:TieredStopAtLevel=1',
  // Silences the JVM about an archive that does not match, and about one being written.
  '-Xlog:cds=off',
  '-Xlog:cds+dynamic=off',
];

/**
 * The Maven project with Kafka's dependencies. Kafka 4.4.0 depends on an artifact that was never published. It includes
 * slf4j 1.7 without a binding, so the binding for log4j is added.
 */
export const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>granary</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>${kafkaVersion}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.4</version>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.9.0</version>
      </plugin>
    </plugins>
  </build>
</project>
`;

/**
 * Filters messages of every normal start: that the only controller has become active, and that a request before this
 * failed and is retried.
 */
export const loggingProperties = `status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
appender.out.filter.start.type = RegexFilter
appender.out.filter.start.regex = .*(Performing controller activation|apiKey=CONTROLLER_REGISTRATION).*
appender.out.filter.start.onMatch = DENY
appender.out.filter.start.onMismatch = NEUTRAL
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
`;

/**
 * The configuration of a single node that is broker and controller, in KRaft mode. Clients and the node itself need
 * credentials, which are created when the data folder is formatted; the controller cannot read its own from there, so
 * they are written here.
 */
export function brokerProperties({ port, controllerPort, data, credentials, ...hosts }: BrokerPlace): string {
  const { listenHost = '127.0.0.1', advertisedHost = '127.0.0.1' } = hosts;
  const { username, password } = credentials;
  const login = `required username="${username}" password="${password}"`;
  return `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${controllerPort}
listeners=BROKER://${listenHost}:${port},CONTROLLER://127.0.0.1:${controllerPort}
advertised.listeners=BROKER://${advertisedHost}:${port}
listener.security.protocol.map=BROKER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
listener.name.broker.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.broker.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule ${login};
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule ${login} user_${username}="${password}";
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.mechanism.controller.protocol=PLAIN
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
log.dirs=${data}
# Topics are made by the deploy step, with the partitions that it says.
auto.create.topics.enable=false
# What else wants three brokers.
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# No waiting for more consumers before the first of a group gets its partitions.
group.initial.rebalance.delay.ms=0
# After a kill a broker waits until its own session has run out, by default 9 s.
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=250
# By default sessions of consumers are not shorter than 6 s.
group.min.session.timeout.ms=500
# By default the cleaner alone takes 128 MiB of heap.
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=65536
log.index.size.max.bytes=1048576
num.network.threads=2
num.io.threads=4
`;
}
