import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class OrdersTest {
    static Kwire kwire;

    @BeforeAll
    static void start() throws IOException {
        kwire = new Kwire();
    }

    @AfterAll
    static void stop() {
        kwire.close();
    }

    @BeforeEach
    void empty() throws Exception {
        kwire.post("/v1/reset", "{}");
    }

    static KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(
            Map.of("bootstrap.servers", kwire.bootstrapServers, "retry.backoff.ms", 10),
            new StringSerializer(),
            new StringSerializer());
    }

    @Test
    void lostAnswerMakesNoDuplicate() throws Exception {
        kwire.post("/v1/topics", "{\"name\": \"orders\"}");
        int fault = kwire.post("/v1/faults", "{\"api\": \"Produce\", \"nth\": 1, \"close\": true, \"after_apply\": true}")
            .at("/faults/0/id").asInt();

        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>("orders", "one pizza")).get();
        }

        assertEquals(1, kwire.get("/v1/faults/" + fault).get("hits").asInt());
        assertEquals(1, kwire.get("/v1/topics/orders").at("/partitions/0/end_offset").asInt());
    }

    @Test
    void recordsAreGoneAfterTheRetentionTime() throws Exception {
        kwire.post("/v1/topics", "{\"name\": \"news\", \"configs\": {\"retention.ms\": \"604800000\"}}");
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>("news", "old news")).get();
        }

        kwire.post("/v1/clock/advance", "{\"duration\": \"8d\"}");

        assertEquals(1, kwire.get("/v1/topics/news").at("/partitions/0/start_offset").asInt());
    }

    @Test
    void misspelledErrorIsToldTheNearestOne() {
        IOException refused = assertThrows(
            IOException.class, () -> kwire.post("/v1/faults", "{\"error\": \"NOT_LEADER\"}"));
        assertTrue(refused.getMessage().contains("NOT_LEADER_OR_FOLLOWER"), refused.getMessage());
    }
}
