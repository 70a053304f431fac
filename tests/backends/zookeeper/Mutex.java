import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's mutex at a path, as a test tells it by the lines of its input. It answers each with one. */
final class Mutex {
    public static void main(String[] words) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(words[0], new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, words[1]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] told = line.split(" ");
            switch (told[0]) {
                case "acquire":
                    System.out.println(mutex.acquire(Long.parseLong(told[1]), TimeUnit.MILLISECONDS) ? "yes" : "no");
                    break;
                case "release":
                    mutex.release();
                    System.out.println("released");
                    break;
                case "write":
                    for (int left = Integer.parseInt(told[1]); left > 0; left--) {
                        mutex.acquire();
                        write(Path.of(told[2]), Path.of(told[3]));
                        mutex.release();
                    }
                    System.out.println("written");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        client.close();
    }

    /** One more than stands there, first into one file, then into the other. */
    private static void write(Path first, Path second) throws Exception {
        String next = String.valueOf(Long.parseLong(Files.readString(first)) + 1);
        Files.writeString(first, next);
        Thread.yield();
        Files.writeString(second, next);
    }
}
