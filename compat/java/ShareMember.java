import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group with explicit acknowledgements: ShareMember TOPIC NAME=VALUE...
 *
 * What a record's value begins with decides what becomes of it: "release N" is released until it was delivered more than N
 * times, "reject" is rejected, "hold" is never acknowledged by its first owner, who waits until it is killed, "renew MS" has its lock
 * renewed again and again, until it has been held for so long, and is accepted then, as are all others at once.
 * One line of standard output for each delivery (got PARTITION OFFSET COUNT VALUE), and for each partition of which the
 * acknowledgements were committed (done OFFSETS..., renewed OFFSETS... or failed EXCEPTION). Ends when standard input does.
 */
public final class ShareMember {
    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** When records that are to be renewed first came, in milliseconds, by partition and offset. */
    private static final Map<String, Long> HELD_SINCE = new HashMap<>();

    private static AcknowledgeType kindOf(ConsumerRecord<String, String> record, long now) {
        String[] words = record.value().split(" ");
        if (words[0].equals("renew")) {
            long since = HELD_SINCE.computeIfAbsent(record.partition() + " " + record.offset(), key -> now);
            return now - since < Long.parseLong(words[1]) ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
        }
        short count = record.deliveryCount().orElse((short) 0);
        if (words[0].equals("reject")) {
            return AcknowledgeType.REJECT;
        }
        if (words[0].equals("release") && count <= Integer.parseInt(words[1])) {
            return AcknowledgeType.RELEASE;
        }
        return AcknowledgeType.ACCEPT;
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (int number = 1; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            properties.setProperty(setting[0], setting[1]);
        }
        properties.putIfAbsent("share.acknowledgement.mode", "explicit");
        AtomicBoolean ended = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException error) {
                say("stdin: " + error);
            }
            ended.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties, text, text)) {
            consumer.subscribe(List.of(arguments[0]));
            while (!ended.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                long now = System.nanoTime() / 1_000_000;
                boolean renews = false;
                for (ConsumerRecord<String, String> record : records) {
                    short count = record.deliveryCount().orElse((short) 0);
                    say("got " + record.partition() + " " + record.offset() + " " + count + " " + record.value());
                    if (record.value().startsWith("hold") && count == 1) {
                        say("holding");
                        Thread.sleep(Long.MAX_VALUE);
                    }
                    AcknowledgeType kind = kindOf(record, now);
                    renews |= kind == AcknowledgeType.RENEW;
                    consumer.acknowledge(record, kind);
                }
                if (records.isEmpty()) {
                    continue;
                }
                Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
                for (Map.Entry<TopicIdPartition, Optional<KafkaException>> entry : outcome.entrySet()) {
                    if (entry.getValue().isPresent()) {
                        say("failed " + entry.getValue().get());
                        continue;
                    }
                    StringBuilder done = new StringBuilder("done " + entry.getKey().partition());
                    StringBuilder renewed = new StringBuilder("renewed " + entry.getKey().partition());
                    for (ConsumerRecord<String, String> record : records) {
                        AcknowledgeType kind = kindOf(record, now);
                        if (record.partition() == entry.getKey().partition() && kind != AcknowledgeType.RELEASE) {
                            (kind == AcknowledgeType.RENEW ? renewed : done).append(' ').append(record.offset());
                        }
                    }
                    say(done.toString());
                    if (renews) {
                        say(renewed.toString());
                    }
                }
                if (renews) {
                    Thread.sleep(300);
                }
            }
        }
        say("closed");
    }
}
