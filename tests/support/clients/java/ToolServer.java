import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's tools one after the other, so that each needs no JVM of its own. A request on
 * standard input: the number of strings, the strings (the main class, then its arguments), the
 * length of the tool's input and the input. The answer on standard output: the exit code, and what
 * the tool printed to its output and to its errors, each with its length.
 */
public final class ToolServer {
    /** Stands for the end of the process; an Error, because tools catch exceptions. */
    private static final class Ended extends Error {
        Ended(int code) {
            super("exit code " + code, null, false, false);
        }
    }

    private static final AtomicReference<Integer> EXIT_CODE = new AtomicReference<>();
    private static final List<Runnable> SHUTDOWN_HOOKS = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Exit.setExitProcedure(ToolServer::end);
        Exit.setHaltProcedure(ToolServer::end);
        Exit.setShutdownHookAdder((name, runnable) -> SHUTDOWN_HOOKS.add(runnable));
        while (true) {
            String[] line;
            try {
                line = new String[requests.readInt()];
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            for (int index = 0; index < line.length; index++) {
                line[index] = new String(read(requests), "UTF-8");
            }
            answer(answers, line, read(requests));
        }
    }

    private static void answer(DataOutputStream answers, String[] line, byte[] input) throws Exception {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        InputStream ownInput = System.in;
        PrintStream ownOutput = System.out;
        PrintStream ownErrors = System.err;
        EXIT_CODE.set(null);
        SHUTDOWN_HOOKS.clear();
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(output, true, "UTF-8"));
        System.setErr(new PrintStream(errors, true, "UTF-8"));
        try {
            // A thread of its own: its name and its context class loader are those of no earlier tool.
            Thread tool = new Thread(() -> run(line), "main");
            tool.start();
            tool.join();
            new ArrayList<>(SHUTDOWN_HOOKS).forEach(Runnable::run);
            System.out.flush();
            System.err.flush();
        } finally {
            System.setIn(ownInput);
            System.setOut(ownOutput);
            System.setErr(ownErrors);
        }
        answers.writeInt(EXIT_CODE.get() == null ? 0 : EXIT_CODE.get());
        write(answers, output.toByteArray());
        write(answers, errors.toByteArray());
        answers.flush();
    }

    private static void run(String[] line) {
        String[] arguments = new String[line.length - 1];
        System.arraycopy(line, 1, arguments, 0, arguments.length);
        try {
            Class.forName(line[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                EXIT_CODE.compareAndSet(null, 1);
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            EXIT_CODE.compareAndSet(null, 1);
        }
    }

    private static void end(int code, String message) {
        // A tool may catch the error and end again; a process would have ended the first time.
        EXIT_CODE.compareAndSet(null, code);
        throw new Ended(code);
    }

    private static byte[] read(DataInputStream source) throws IOException {
        byte[] bytes = new byte[source.readInt()];
        source.readFully(bytes);
        return bytes;
    }

    private static void write(DataOutputStream target, byte[] bytes) throws IOException {
        target.writeInt(bytes.length);
        target.write(bytes);
    }
}
