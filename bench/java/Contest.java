import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;

/**
 * One process of a contest in Java, with the same checks in the same memory as bench/contest.py.
 *
 * Each line of standard input is a contest: oracle, number of the process, threads, seconds, times (0: as often as
 * possible in that time), body in seconds, and the moment to begin on CLOCK_MONOTONIC. Each answer is a line of JSON.
 */
public final class Contest {
    // These values are those of bench/contest.py.
    private static final int INSIDE = 0, ENTERED = 1, THREAD = 3, PROCESS = 4, LEFT = 5, SIZE = 6;
    private static final String NAME = "hot";

    private final Peers.Lock lock;
    private final LongBuffer cells;
    private final int number, threads, times;
    private final double body;
    private final long begin, until;

    private Contest(Peers.Lock lock, String[] told) throws Exception {
        this.lock = lock;
        try (FileChannel file = FileChannel.open(
                Path.of(told[0]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            cells = file.map(FileChannel.MapMode.READ_WRITE, 0, SIZE * 8)
                    .order(ByteOrder.nativeOrder()).asLongBuffer();
        }
        number = Integer.parseInt(told[1]);
        threads = Integer.parseInt(told[2]);
        times = Integer.parseInt(told[4]);
        body = Double.parseDouble(told[5]);
        begin = (long) (Double.parseDouble(told[6]) * 1e9);
        until = begin + (long) (Double.parseDouble(told[3]) * 1e9);
    }

    /** The observations of one thread, like bench.contest.Witness. */
    private final class Witness extends Thread {
        final long me;
        final List<Long> waits = new ArrayList<>();
        final List<Long> handOvers = new ArrayList<>();
        long violations, changes, processChanges;
        Exception failure;

        Witness(long me) {
            this.me = me;
        }

        @Override
        public void run() {
            try {
                sleepUntil(begin);
                while (times > 0 ? waits.size() < times : waits.isEmpty() || System.nanoTime() < until) {
                    passThrough();
                }
            } catch (Exception error) {
                failure = error;
            }
        }

        private void passThrough() throws Exception {
            long process = ProcessHandle.current().pid(), asked = System.nanoTime();
            Peers.Release held = lock.take(NAME);
            try {
                long now = System.nanoTime();
                violations += cells.get(INSIDE) != 0 ? 1 : 0;
                cells.put(INSIDE, me);
                long entered = cells.get(ENTERED);
                if (entered > 0 && cells.get(THREAD) != me) {
                    changes++;
                    processChanges += cells.get(PROCESS) != process ? 1 : 0;
                    if (asked < cells.get(LEFT) && cells.get(LEFT) < now) {
                        handOvers.add(now - cells.get(LEFT));
                    }
                }
                cells.put(THREAD, me);
                cells.put(PROCESS, process);
                if (body > 0) {
                    sleepUntil(System.nanoTime() + (long) (body * 1e9));
                }
                violations += cells.get(INSIDE) != me ? 1 : 0;
                cells.put(ENTERED, entered + 1);
                cells.put(INSIDE, 0);
                cells.put(LEFT, System.nanoTime());
                waits.add(now - asked);
            } finally {
                held.release();
            }
        }
    }

    private static void sleepUntil(long moment) throws InterruptedException {
        for (long left; (left = moment - System.nanoTime()) > 0; ) {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
    }

    private String carryOut() throws Exception {
        List<Witness> crew = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            crew.add(new Witness((long) number * threads + i + 1));
        }
        crew.forEach(Thread::start);
        sleepUntil(begin);
        long cpu = processorTime();
        StringJoiner waits = new StringJoiner(","), handOvers = new StringJoiner(","), entered = new StringJoiner(",");
        long violations = 0, changes = 0, processChanges = 0;
        for (Witness one : crew) {
            one.join();
        }
        long ended = System.nanoTime();
        cpu = processorTime() - cpu;
        for (Witness one : crew) {
            if (one.failure != null) {
                throw one.failure;
            }
            one.waits.forEach(wait -> waits.add(wait.toString()));
            one.handOvers.forEach(gap -> handOvers.add(gap.toString()));
            entered.add(Integer.toString(one.waits.size()));
            violations += one.violations;
            changes += one.changes;
            processChanges += one.processChanges;
        }
        return String.format(
                "{\"waits\":[%s],\"hand_overs\":[%s],\"entered\":[%s],\"violations\":%d,\"changes\":%d,"
                        + "\"process_changes\":%d,\"ended\":%d,\"cpu\":%d}",
                waits, handOvers, entered, violations, changes, processChanges, ended, cpu);
    }

    private static long processorTime() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    public static void main(String[] told) throws Exception {
        PrintStream answers = System.out;
        // Libraries may print, too, so answers go to another stream.
        System.setOut(System.err);
        Peers.Lock lock = Peers.make(told[0], told[1]);
        lock.take("warm").release();
        answers.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = orders.readLine()) != null; ) {
            answers.println(new Contest(lock, line.split("\t")).carryOut());
        }
        System.exit(0);
    }
}
