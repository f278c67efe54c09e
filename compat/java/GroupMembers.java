import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;

import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of consumer groups, by the Java client, each in a thread of its own; tests/support/group_members.py describes the lines.
 *
 * A record is written, then committed before its partition is given up. A member that fails for good (its instance id is still
 * taken, say) is made anew, as a supervisor would do.
 */
public final class GroupMembers {
    private static final long PATIENCE_MS = 10_000;
    private static final PrintStream OUT = new PrintStream(System.out, false);

    private static void say(String lines) {
        synchronized (OUT) {
            OUT.print(lines);
            OUT.flush();
        }
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final String topics;
        private final Properties settings;
        /** What was written and not committed. */
        private final Map<TopicPartition, OffsetAndMetadata> open = new HashMap<>();
        private KafkaConsumer<String, String> consumer;
        private volatile boolean leaving;
        private volatile boolean forGood;

        Member(String name, String topics, Properties settings) {
            this.name = name;
            this.topics = topics;
            this.settings = settings;
            setDaemon(true);
        }

        void leave(boolean forGood) {
            this.forGood = forGood;
            leaving = true;
        }

        @Override
        public void run() {
            while (!leaving) {
                open.clear();
                try {
                    consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                    subscribe();
                    read();
                } catch (KafkaException error) {
                    open.clear();
                    say(name + " failed " + error.toString().replaceAll("\\s+", " ") + "\n");
                    pause(200);
                }
                close();
            }
            say(name + " left\n");
        }

        private void subscribe() {
            if (!topics.startsWith("^")) {
                consumer.subscribe(List.of(topics), this);
            } else if (settings.getProperty("group.protocol").equals("consumer")) {
                consumer.subscribe(new SubscriptionPattern(topics), this);
            } else {
                consumer.subscribe(Pattern.compile(topics), this);
            }
        }

        private void close() {
            GroupMembershipOperation operation =
                    forGood ? GroupMembershipOperation.LEAVE_GROUP : GroupMembershipOperation.DEFAULT;
            try {
                consumer.close(CloseOptions.groupMembershipOperation(operation));
            } catch (KafkaException error) {
                say(name + " failed " + error.toString().replaceAll("\\s+", " ") + "\n");
            }
        }

        private void read() {
            while (!leaving || !open.isEmpty()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                StringBuilder lines = new StringBuilder();
                for (ConsumerRecord<String, String> record : records) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    open.put(partition, new OffsetAndMetadata(record.offset() + 1));
                    lines.append(name).append(" record ").append(record.topic()).append(' ').append(record.partition());
                    lines.append(' ').append(record.offset()).append(' ').append(record.value()).append('\n');
                }
                say(lines.toString());
                if (!open.isEmpty()) {
                    commit(open.keySet());
                }
            }
        }

        private boolean commit(Collection<TopicPartition> partitions) {
            Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>(open);
            wanted.keySet().retainAll(partitions);
            if (wanted.isEmpty()) {
                return true;
            }
            try {
                consumer.commitSync(wanted);
            } catch (KafkaException error) {
                say(name + " refused " + error.toString().replaceAll("\\s+", " ") + "\n");
                return false;
            }
            StringBuilder lines = new StringBuilder();
            wanted.forEach((partition, offset) -> {
                lines.append(name).append(" committed ").append(partition.topic()).append(' ');
                lines.append(partition.partition()).append(' ').append(offset.offset()).append('\n');
            });
            say(lines.toString());
            open.keySet().removeAll(wanted.keySet());
            return true;
        }

        private void commitAll(Collection<TopicPartition> partitions) {
            long giveUp = System.nanoTime() + PATIENCE_MS * 1_000_000;
            while (!commit(partitions) && System.nanoTime() < giveUp) {
                pause(50);
            }
        }

        private void tell(String what, Collection<TopicPartition> partitions) {
            StringBuilder lines = new StringBuilder();
            for (TopicPartition each : partitions) {
                lines.append(name).append(' ').append(what).append(' ').append(each.topic());
                lines.append(' ').append(each.partition()).append('\n');
            }
            say(lines.toString());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commitAll(partitions);
            open.keySet().removeAll(partitions);
            tell("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            open.keySet().removeAll(partitions);
            tell("lost", partitions);
        }

        private static void pause(long milliseconds) {
            try {
                Thread.sleep(milliseconds);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = commands.readLine()) != null) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) {
                Properties settings = new Properties();
                for (int number = 3; number < words.length; number++) {
                    String[] setting = words[number].split("=", 2);
                    settings.setProperty(setting[0], setting[1]);
                }
                members.put(words[1], new Member(words[1], words[2], settings));
                members.get(words[1]).start();
            } else {
                members.get(words[1]).leave(words[0].equals("quit"));
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
