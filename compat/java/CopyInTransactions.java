import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies a topic in transactions, with the Java client's defaults; bench/restarts.py describes the arguments and the lines. */
public final class CopyInTransactions {
    private static volatile boolean stopping;

    private final Properties settings = new Properties();
    private final String target;
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;

    private CopyInTransactions(String bootstrap, String source, String target, String name) {
        this.target = target;
        settings.setProperty("bootstrap.servers", bootstrap);
        settings.setProperty("transactional.id", name);
        Properties reading = new Properties();
        reading.setProperty("bootstrap.servers", bootstrap);
        reading.setProperty("group.id", name);
        reading.setProperty("auto.offset.reset", "earliest");
        reading.setProperty("enable.auto.commit", "false");
        reading.setProperty("isolation.level", "read_committed");
        reading.setProperty("max.poll.records", "5");
        consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(source));
    }

    private static void say(String line) {
        System.out.println(line.replaceAll("\\s+", " "));
        System.out.flush();
    }

    /** Time a call; repeat it if its error is retriable. */
    private static void call(String name, Runnable action) {
        long began = System.nanoTime();
        try {
            while (true) {
                try {
                    action.run();
                    return;
                } catch (RetriableException error) {
                    say("again " + name + " " + error);
                }
            }
        } finally {
            say("call " + name + " " + (System.nanoTime() - began) / 1_000_000);
        }
    }

    private void open() {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        call("initTransactions", producer::initTransactions);
    }

    private void copy(ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            call("send", () -> producer.send(new ProducerRecord<>(target, record.partition(), null, record.value())));
            next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        call("sendOffsetsToTransaction", () -> producer.sendOffsetsToTransaction(next, consumer.groupMetadata()));
        call("commitTransaction", producer::commitTransaction);
    }

    private void goBack() {
        consumer.committed(consumer.assignment()).forEach((partition, offset) ->
                consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }

    private void run() throws InterruptedException {
        open();
        while (!stopping) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) {
                continue;
            }
            try {
                copy(records);
            } catch (KafkaException error) {
                try {
                    call("abortTransaction", producer::abortTransaction);
                    say("abort " + error);
                } catch (KafkaException worse) {
                    say("fatal " + error + ", then " + worse);
                    open();
                }
                goBack();
            }
            Thread.sleep(200);
        }
        producer.close();
        consumer.close();
    }

    public static void main(String[] arguments) throws InterruptedException {
        Thread waiting = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException error) {
                say("fatal " + error);
            }
            stopping = true;
        });
        waiting.setDaemon(true);
        waiting.start();
        new CopyInTransactions(arguments[0], arguments[1], arguments[2], arguments[3]).run();
    }
}
