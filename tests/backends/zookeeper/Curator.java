import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/**
 * Locks of Curator at a path, as a test tells them by the lines of its input. It answers each with one.
 *
 * <p>The class Distlock is the one in docs/from/java.md.
 */
final class Curator {
    public static void main(String[] words) throws Exception {
        CuratorFramework client = Distlock.connect(words[0], Integer.parseInt(words[2]));
        client.blockUntilConnected();
        InterProcessLock lock = lock(client, words[1], "mutex");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] told = line.split(" ");
            switch (told[0]) {
                case "recipe":
                    lock = lock(client, words[1], told[1]);
                    System.out.println("ready");
                    break;
                case "lock":
                    lock = Distlock.lock(client, told[1], told[2], told[3]);
                    System.out.println("ready");
                    break;
                case "encode":
                    System.out.println(encoded(line.substring("encode ".length())));
                    break;
                case "acquire":
                    System.out.println(lock.acquire(Long.parseLong(told[1]), TimeUnit.MILLISECONDS) ? "yes" : "no");
                    break;
                case "release":
                    lock.release();
                    System.out.println("released");
                    break;
                case "write":
                    for (int left = Integer.parseInt(told[1]); left > 0; left--) {
                        lock.acquire();
                        write(Path.of(told[2]), Path.of(told[3]));
                        lock.release();
                    }
                    System.out.println("written");
                    break;
                case "loop":
                    for (int left = Integer.parseInt(told[1]); left > 0; left--) {
                        lock.acquire();
                        lock.release();
                    }
                    System.out.println("looped");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        client.close();
    }

    private static String encoded(String key) {
        try {
            return Distlock.encode(key);
        } catch (IllegalArgumentException tooLong) {
            return "refused";
        }
    }

    private static InterProcessLock lock(CuratorFramework client, String path, String recipe) {
        switch (recipe) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            case "semaphore-mutex":
                return new InterProcessSemaphoreMutex(client, path);
            case "semaphore":
                return new Permit(new InterProcessSemaphoreV2(client, path, 5));
            default:
                throw new IllegalArgumentException(recipe);
        }
    }

    /** One permit of a semaphore. */
    private static final class Permit implements InterProcessLock {
        private final InterProcessSemaphoreV2 semaphore;
        private Lease lease;

        Permit(InterProcessSemaphoreV2 semaphore) {
            this.semaphore = semaphore;
        }

        @Override
        public void acquire() throws Exception {
            lease = semaphore.acquire();
        }

        @Override
        public boolean acquire(long time, TimeUnit unit) throws Exception {
            lease = semaphore.acquire(time, unit);
            return lease != null;
        }

        @Override
        public void release() {
            semaphore.returnLease(lease);
            lease = null;
        }

        @Override
        public boolean isAcquiredInThisProcess() {
            return lease != null;
        }
    }

    /** One more than stands there, first into one file, then into the other. */
    private static void write(Path first, Path second) throws Exception {
        String next = String.valueOf(Long.parseLong(Files.readString(first)) + 1);
        Files.writeString(first, next);
        Thread.yield();
        Files.writeString(second, next);
    }
}
