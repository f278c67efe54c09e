import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;

/** A broker in a process of its own, and its control port. */
final class Kwire implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();

    final String bootstrapServers;
    private final String url;
    private final String token;
    private final Process process;
    private final HttpClient http = HttpClient.newHttpClient();

    Kwire() throws IOException {
        Path file = Files.createTempDirectory("kwire").resolve("control.json");
        process = new ProcessBuilder(
                "kwire", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--control-file", file.toString())
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
        BufferedReader output = new BufferedReader(new InputStreamReader(process.getInputStream()));
        String line = output.readLine();
        if (line == null || !line.startsWith("kwire ready ")) {
            throw new IOException("the broker does not start: " + line);
        }
        JsonNode told = JSON.readTree(file.toFile());
        Files.delete(file);
        Files.delete(file.getParent());
        url = told.get("url").asText();
        token = told.get("token").asText();
        bootstrapServers = told.get("bootstrap_servers").asText();
    }

    JsonNode get(String path) throws IOException, InterruptedException {
        return send(request(path).GET());
    }

    JsonNode post(String path, String json) throws IOException, InterruptedException {
        return send(request(path).POST(HttpRequest.BodyPublishers.ofString(json)));
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(url + path)).header("Authorization", "Bearer " + token);
    }

    private JsonNode send(HttpRequest.Builder request) throws IOException, InterruptedException {
        HttpResponse<String> answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        JsonNode value = JSON.readTree(answer.body());
        if (answer.statusCode() >= 300) {
            throw new IOException(value.path("error").asText());
        }
        return value;
    }

    @Override
    public void close() {
        process.destroy();
    }
}
