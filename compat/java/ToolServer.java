import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Apache Kafka's command-line tools one after another in one JVM, because
 * starting a JVM costs more than most of them do. The tools are unmodified: their exit goes through
 * Kafka's own Exit class, whose procedure is replaced, and standard streams are redirected.
 *
 * A request on standard input: int count, that many strings (class name, then arguments), and the
 * tool's standard input as int length and bytes. The answer on standard output: int status, and
 * what the tool wrote to standard output and to standard error, each as int length and bytes.
 * Strings are int length and UTF-8 bytes.
 */
public final class ToolServer {
    private static final class ToolExit extends Error {
        final int status;

        ToolExit(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    /** A stream whose destination changes: Scala's Console keeps the stream it saw first. */
    private static final class Switched extends OutputStream {
        private final AtomicReference<OutputStream> target = new AtomicReference<>(nullOutputStream());

        @Override
        public void write(int value) throws IOException {
            target.get().write(value);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            target.get().write(bytes, offset, length);
        }
    }

    private static byte[] readBytes(DataInputStream in) throws IOException {
        return in.readNBytes(in.readInt());
    }

    private static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static int runTool(String className, String[] arguments, Runnable mute) throws Throwable {
        AtomicReference<Integer> status = new AtomicReference<>(null);
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        Exit.Procedure procedure = (code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            if (status.compareAndSet(null, code) && hooks.isEmpty()) {
                mute.run(); // what a tool says about the error below would not be said in life
            }
            throw new ToolExit(code);
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        AtomicReference<Throwable> failure = new AtomicReference<>(null);
        Thread tool = new Thread(() -> {
            try {
                Method main = Class.forName(className).getMethod("main", String[].class);
                main.invoke(null, (Object) arguments);
            } catch (InvocationTargetException thrown) {
                failure.set(thrown.getCause());
            } catch (ReflectiveOperationException | RuntimeException | Error thrown) {
                failure.set(thrown);
            }
        }, "tool");
        tool.start();
        tool.join();
        for (Runnable hook : hooks) {
            hook.run();
        }
        Throwable thrown = failure.get();
        if (thrown != null && !(thrown instanceof ToolExit)) {
            thrown.printStackTrace();
            return 1;
        }
        return status.get() == null ? 0 : status.get();
    }

    public static void main(String[] unused) throws Throwable {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        Switched standardOut = new Switched();
        Switched standardError = new Switched();
        System.setOut(new PrintStream(standardOut, true));
        System.setErr(new PrintStream(standardError, true));
        while (true) {
            int count;
            try {
                count = in.readInt();
            } catch (IOException end) {
                break;
            }
            String className = new String(readBytes(in), "UTF-8");
            String[] arguments = new String[count - 1];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = new String(readBytes(in), "UTF-8");
            }
            System.setIn(new ByteArrayInputStream(readBytes(in)));
            ByteArrayOutputStream toolOut = new ByteArrayOutputStream();
            ByteArrayOutputStream toolError = new ByteArrayOutputStream();
            standardOut.target.set(toolOut);
            standardError.target.set(toolError);
            Runnable mute = () -> {
                System.out.flush();
                System.err.flush();
                standardOut.target.set(OutputStream.nullOutputStream());
                standardError.target.set(OutputStream.nullOutputStream());
            };
            int status = runTool(className, arguments, mute);
            mute.run();
            out.writeInt(status);
            writeBytes(out, toolOut.toByteArray());
            writeBytes(out, toolError.toByteArray());
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
