// Transactions of one producer that commits and aborts in turns: AlternatingTransactions BOOTSTRAP TRANSACTIONAL_ID COUNT TOPIC...
// Each transaction sends its number to the four partitions of each topic. Prints "committed" or "aborted" with the number of each.

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class AlternatingTransactions {
    static final int PARTITIONS = 4;

    public static void main(String[] given) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, given[1]);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int number = 0; number < Integer.parseInt(given[2]); number++) {
                producer.beginTransaction();
                for (int topic = 3; topic < given.length; topic++)
                    for (int partition = 0; partition < PARTITIONS; partition++)
                        producer.send(new ProducerRecord<>(given[topic], partition, null, Integer.toString(number)));
                // Without this the client's sender thread may look for unsent records, find none, wait for a lock while this thread
                // sends and ends the transaction, and then send EndTxn before the records (Sender.java, nextRequest of hasIncomplete).
                producer.flush();
                if (number % 2 == 0) {
                    producer.commitTransaction();
                    System.out.println("committed " + number);
                } else {
                    producer.abortTransaction();
                    System.out.println("aborted " + number);
                }
            }
        } catch (KafkaException error) {
            // Java's launcher of source files cannot show what another thread has made.
            error.printStackTrace();
            System.exit(1);
        }
    }
}
