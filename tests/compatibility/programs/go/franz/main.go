// franz-go as the compatibility matrix drives it; tests/compatibility/written_programs.py says what each command reads and prints.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"antipode/compatibility/security"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const within = 60 * time.Second

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// secured returns the options of the login that the environment asks for.
func secured() []kgo.Opt {
	settings, err := security.Read()
	check(err)
	if settings == nil {
		return nil
	}
	encrypted, err := settings.TLS()
	check(err)
	options := []kgo.Opt{kgo.DialTLSConfig(encrypted), kgo.RecordDeliveryTimeout(20 * time.Second)}
	var mechanism sasl.Mechanism
	switch settings.Mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: settings.User, Pass: settings.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: settings.User, Pass: settings.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: settings.User, Pass: settings.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: settings.Token}.AsMechanism()
	default:
		return options
	}
	return append(options, kgo.SASL(mechanism))
}

func open(bootstrap string, options ...kgo.Opt) *kgo.Client {
	options = append(options, secured()...)
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}, options...)...)
	check(err)
	return client
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

func record(topic, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: 0, Value: []byte(value)}
}

func produce(ctx context.Context, bootstrap, topic string) {
	client := open(bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for _, line := range lines() {
		records = append(records, record(topic, line))
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
}

// take polls until so many records came, prints each, and returns them.
func take(ctx context.Context, client *kgo.Client, count int) []*kgo.Record {
	var taken []*kgo.Record
	for len(taken) < count {
		fetches := client.PollRecords(ctx, count-len(taken))
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		for _, record := range fetches.Records() {
			fmt.Println(record.Partition, record.Offset, string(record.Value))
			taken = append(taken, record)
		}
	}
	return taken
}

func consume(ctx context.Context, bootstrap, topic, isolation string, count int) {
	level := kgo.ReadUncommitted()
	if isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	client := open(bootstrap, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	take(ctx, client, count)
}

func join(ctx context.Context, bootstrap, topic, group string, count int) {
	client := open(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	check(client.CommitRecords(ctx, take(ctx, client, count)...))
}

func transact(ctx context.Context, bootstrap, topic, id string) {
	client := open(bootstrap, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	check(client.BeginTransaction())
	for _, line := range lines() {
		switch line {
		case "!commit", "!abort":
			check(client.Flush(ctx))
			check(client.EndTransaction(ctx, kgo.TransactionEndTry(line == "!commit")))
			check(client.BeginTransaction())
		default:
			client.Produce(ctx, record(topic, line), func(_ *kgo.Record, err error) { check(err) })
		}
	}
	check(client.EndTransaction(ctx, kgo.TryAbort))
}

func copyInTransactions(ctx context.Context, bootstrap, source, target, group, id string, count int) {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.TransactionalID(id),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer session.Close()
	for copied := 0; copied < count; {
		fetches := session.PollRecords(ctx, 20)
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		check(session.Begin())
		for _, read := range fetches.Records() {
			session.Produce(ctx, record(target, string(read.Value)), func(_ *kgo.Record, err error) { check(err) })
		}
		isCommitted, err := session.End(ctx, kgo.TryCommit)
		check(err)
		if isCommitted {
			copied += fetches.NumRecords()
		}
	}
}

func administer(ctx context.Context, bootstrap, command, topic string, arguments []string) {
	client := open(bootstrap)
	defer client.Close()
	admin := kadm.NewClient(client)
	switch command {
	case "create-topic":
		partitions, err := strconv.Atoi(arguments[0])
		check(err)
		created, err := admin.CreateTopic(ctx, int32(partitions), -1, map[string]*string{"retention.ms": &arguments[1]}, topic)
		check(err)
		check(created.Err)
	case "describe-topic":
		topics, err := admin.ListTopics(ctx, topic)
		check(err)
		configs, err := admin.DescribeTopicConfigs(ctx, topic)
		check(err)
		detail := topics[topic]
		check(detail.Err)
		for _, config := range configs[0].Configs {
			if config.Key == "retention.ms" {
				fmt.Println(len(detail.Partitions), detail.Partitions.NumReplicas(), config.MaybeValue())
			}
		}
	case "set-retention":
		_, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &arguments[0]}}, topic)
		check(err)
	case "add-partitions":
		total, err := strconv.Atoi(arguments[0])
		check(err)
		grown, err := admin.UpdatePartitions(ctx, total, topic)
		check(err)
		check(grown[topic].Err)
	case "list-groups":
		groups, err := admin.ListGroups(ctx)
		check(err)
		for _, group := range groups.Groups() {
			fmt.Println(group)
		}
	case "delete-topic":
		deleted, err := admin.DeleteTopics(ctx, topic)
		check(err)
		check(deleted[topic].Err)
	default:
		check(fmt.Errorf("no command %s", command))
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	command, bootstrap, given := os.Args[1], os.Args[2], os.Args[3:]
	switch command {
	case "produce":
		produce(ctx, bootstrap, given[0])
	case "consume":
		consume(ctx, bootstrap, given[0], given[1], number(given[2]))
	case "join":
		join(ctx, bootstrap, given[0], given[1], number(given[2]))
	case "transact":
		transact(ctx, bootstrap, given[0], given[1])
	case "copy":
		copyInTransactions(ctx, bootstrap, given[0], given[1], given[2], given[3], number(given[4]))
	default:
		administer(ctx, bootstrap, command, given[0], given[1:])
	}
}
