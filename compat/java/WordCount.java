import java.io.FileReader;
import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts the words of a topic's lines with Kafka Streams: WordCount PROPERTIES INPUT OUTPUT.
 *
 * The properties file is Streams' own configuration. Between reading and counting lies the
 * repartition topic `words`, behind the counting the changelog of the store `counts`. Each state is
 * one line on standard output, and so is each thread that failed and was replaced. Ends, with
 * everything committed, when standard input does.
 */
public final class WordCount {
    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
                .toStream()
                .to(arguments[2], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(thrown -> {
            say("failed " + thrown);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close();
    }
}
