// Sarama as the compatibility matrix drives it; tests/compatibility/written_programs.py says what each command reads and prints.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"antipode/compatibility/security"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const within = 60 * time.Second

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// conversation is one SCRAM exchange, which this library leaves to its user.
type conversation struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (exchange *conversation) Begin(user, password, authorization string) error {
	client, err := exchange.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	exchange.ClientConversation = client.NewConversation()
	return nil
}

// token is the login by a signed token.
type token string

func (given token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(given)}, nil
}

// secure has the connections log in as the environment asks.
func secure(config *sarama.Config) {
	given, err := security.Read()
	check(err)
	if given == nil {
		return
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config, err = given.TLS()
	check(err)
	if given.Mechanism == "" {
		return
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(given.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = given.User, given.Password
	switch given.Mechanism {
	case "SCRAM-SHA-256":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: scram.SHA256} }
	case "SCRAM-SHA-512":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: scram.SHA512} }
	case "OAUTHBEARER":
		config.Net.SASL.TokenProvider = token(given.Token)
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	secure(config)
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func lines() []string {
	var found []string
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		found = append(found, scanner.Text())
	}
	check(scanner.Err())
	return found
}

func message(topic, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: 0, Value: sarama.StringEncoder(value)}
}

func produce(brokers []string, topic string) {
	producer, err := sarama.NewSyncProducer(brokers, settings())
	check(err)
	var messages []*sarama.ProducerMessage
	for _, line := range lines() {
		messages = append(messages, message(topic, line))
	}
	err = producer.SendMessages(messages)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) && len(failed) > 0 {
		err = failed[0].Err
	}
	check(err)
	check(producer.Close())
}

func consume(brokers []string, topic, isolation string, count int) {
	config := settings()
	if isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(brokers, config)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err)
	for range count {
		select {
		case read := <-partition.Messages():
			fmt.Println(read.Partition, read.Offset, string(read.Value))
		case <-time.After(within):
			check(errors.New("no more records"))
		}
	}
	check(consumer.Close())
}

// member takes records of a group until it has as many as wanted; what it does with each batch is the caller's.
type member struct {
	left   int
	handle func(session sarama.ConsumerGroupSession, read *sarama.ConsumerMessage)
	done   context.CancelFunc
	turn   chan struct{}
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case read, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			m.turn <- struct{}{} // claims of several partitions run side by side
			if m.left > 0 {
				m.handle(session, read)
				m.left--
			}
			if m.left == 0 {
				session.Commit()
				m.done()
			}
			<-m.turn
		}
	}
}

func takePart(brokers []string, config *sarama.Config, topic, group string, count int,
	handle func(session sarama.ConsumerGroupSession, read *sarama.ConsumerMessage)) {
	consumer, err := sarama.NewConsumerGroup(brokers, group, config)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	taking := &member{left: count, handle: handle, done: cancel, turn: make(chan struct{}, 1)}
	for ctx.Err() == nil {
		check(consumer.Consume(ctx, []string{topic}, taking))
	}
	check(consumer.Close())
	if taking.left > 0 {
		check(fmt.Errorf("%d records did not come", taking.left))
	}
}

func join(brokers []string, topic, group string, count int) {
	takePart(brokers, settings(), topic, group, count, func(session sarama.ConsumerGroupSession, read *sarama.ConsumerMessage) {
		fmt.Println(read.Partition, read.Offset, string(read.Value))
		session.MarkMessage(read, "")
	})
}

func transactional(brokers []string, id string) sarama.SyncProducer {
	config := settings()
	config.Producer.Transaction.ID = id
	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	return producer
}

func transact(brokers []string, topic, id string) {
	producer := transactional(brokers, id)
	check(producer.BeginTxn())
	for _, line := range lines() {
		switch line {
		case "!commit":
			check(producer.CommitTxn())
			check(producer.BeginTxn())
		case "!abort":
			check(producer.AbortTxn())
			check(producer.BeginTxn())
		default:
			_, _, err := producer.SendMessage(message(topic, line))
			check(err)
		}
	}
	check(producer.AbortTxn())
	check(producer.Close())
}

func copyInTransactions(brokers []string, source, target, group, id string, count int) {
	producer := transactional(brokers, id)
	config := settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	takePart(brokers, config, source, group, count, func(_ sarama.ConsumerGroupSession, read *sarama.ConsumerMessage) {
		check(producer.BeginTxn())
		_, _, err := producer.SendMessage(message(target, string(read.Value)))
		check(err)
		check(producer.AddMessageToTxn(read, group, nil))
		check(producer.CommitTxn())
	})
	check(producer.Close())
}

func administer(brokers []string, command, topic string, arguments []string) {
	admin, err := sarama.NewClusterAdmin(brokers, settings())
	check(err)
	defer admin.Close()
	switch command {
	case "create-topic":
		detail := &sarama.TopicDetail{NumPartitions: int32(number(arguments[0])), ReplicationFactor: -1,
			ConfigEntries: map[string]*string{"retention.ms": &arguments[1]}}
		check(admin.CreateTopic(topic, detail, false))
	case "describe-topic":
		found, err := admin.DescribeTopics([]string{topic})
		check(err)
		check(errorOf(found[0].Err))
		configs, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
		check(err)
		for _, config := range configs {
			if config.Name == "retention.ms" {
				fmt.Println(len(found[0].Partitions), len(found[0].Partitions[0].Replicas), config.Value)
			}
		}
	case "set-retention":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &arguments[0]}}
		check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false))
	case "add-partitions":
		check(admin.CreatePartitions(topic, int32(number(arguments[0])), nil, false))
	case "list-groups":
		groups, err := admin.ListConsumerGroups()
		check(err)
		for group := range groups {
			fmt.Println(group)
		}
	case "delete-topic":
		check(admin.DeleteTopic(topic))
	default:
		check(fmt.Errorf("no command %s", command))
	}
}

func errorOf(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func main() {
	command, brokers, given := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3:]
	switch command {
	case "produce":
		produce(brokers, given[0])
	case "consume":
		consume(brokers, given[0], given[1], number(given[2]))
	case "join":
		join(brokers, given[0], given[1], number(given[2]))
	case "transact":
		transact(brokers, given[0], given[1])
	case "copy":
		copyInTransactions(brokers, given[0], given[1], given[2], given[3], number(given[4]))
	default:
		administer(brokers, command, given[0], given[1:])
	}
}
