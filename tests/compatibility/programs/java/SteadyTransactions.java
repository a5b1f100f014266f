// Transactions without a pause until the input ends: SteadyTransactions BOOTSTRAP TOPIC TRANSACTIONAL_ID
// Each writes its value to two partitions and stays open for a moment. Prints "committed" or "aborted" with the value of each, and "fatal"
// with the reason when the producer cannot go on.

import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

public class SteadyTransactions {
    static final int PARTITIONS = 2;
    static final int OPEN_MS = 50;

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, given[2]);
        settings.put(ProducerConfig.METADATA_MAX_AGE_CONFIG, 1000);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        AtomicBoolean isStopped = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException gone) {
            }
            isStopped.set(true);
        });
        input.setDaemon(true);
        input.start();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int number = 0; !isStopped.get(); number++) {
                String value = given[2] + "-" + number;
                producer.beginTransaction();
                try {
                    for (int partition = 0; partition < PARTITIONS; partition++)
                        producer.send(new ProducerRecord<>(given[1], partition, null, value));
                    Thread.sleep(OPEN_MS);
                    untilAnswered(producer::commitTransaction);
                    System.out.println("committed " + value);
                } catch (KafkaException failure) {
                    untilAnswered(producer::abortTransaction);
                    System.out.println("aborted " + value);
                }
            }
        } catch (KafkaException failure) {
            System.out.println("fatal " + failure + ", because of " + failure.getCause());
        }
    }

    static void untilAnswered(Runnable end) {
        while (true) {
            try {
                end.run();
                return;
            } catch (TimeoutException again) {
            }
        }
    }
}
