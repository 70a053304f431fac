import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The locks that are measured, each as its documentation shows it. */
final class Peers {
    /** Takes the lock of a name, and returns its release. */
    interface Lock {
        Release take(String name) throws Exception;
    }

    interface Release {
        void release() throws Exception;
    }

    private static final long PATIENCE = 60;

    /** Makes a lock of the kind that bench/locks.py calls so, at its URL. */
    static Lock make(String kind, String url) {
        switch (kind) {
            case "Curator":
                return curator(url);
            case "RLock":
                RedissonClient client = redisson(url);
                return name -> held(client.getLock(name));
            case "RFairLock":
                RedissonClient fair = redisson(url);
                return name -> held(fair.getFairLock("fair-" + name));
            default:
                throw new IllegalArgumentException("There is no lock " + kind + ".");
        }
    }

    private static Lock curator(String url) {
        String hosts = url.substring("zookeeper://".length()).split("/")[0];
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, new ExponentialBackoffRetry(1000, 3));
        client.start();
        return name -> {
            // Each acquisition has its own object, because one that threads share is several times slower.
            InterProcessMutex mutex = new InterProcessMutex(client, "/bench-curator/" + name);
            if (!mutex.acquire(PATIENCE, TimeUnit.SECONDS)) {
                throw new IllegalStateException("Waited in vain.");
            }
            return mutex::release;
        };
    }

    private static RedissonClient redisson(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        return Redisson.create(config);
    }

    private static Release held(RLock lock) throws InterruptedException {
        if (!lock.tryLock(PATIENCE, TimeUnit.SECONDS)) {
            throw new IllegalStateException("Waited in vain.");
        }
        return lock::unlock;
    }
}
