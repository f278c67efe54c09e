import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractRequest;

/**
 * Reads requests as a broker does. A line of standard input is an API key, a version and the body in
 * hexadecimal; the answering line on standard output is "read", or "refused" and the exception,
 * for which a broker closes the connection.
 */
public final class ReadRequests {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 3);
            ApiKeys key = ApiKeys.forId(Integer.parseInt(parts[0]));
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
            String answer;
            try {
                AbstractRequest.parseRequest(key, Short.parseShort(parts[1]), body);
                answer = "read";
            } catch (RuntimeException error) {
                answer = "refused " + error;
            }
            System.out.println(answer.replaceAll("[^ -~]", "?"));
        }
    }
}
