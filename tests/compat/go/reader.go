package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/inlong/inlong-tubemq/tubemq-client-twins/tubemq-client-go/client"
)

type reader struct {
	name     string
	consumer client.Consumer
	stopping atomic.Bool
	done     chan struct{}
}

var positions = map[string]string{"first": "-1", "latest": "0", "max": "1", "": "-1"}

func openConsumer(asked request) (object, error) {
	var topics map[string][]string
	if err := json.Unmarshal(asked.Topics, &topics); err != nil {
		return nil, err
	}
	parameters := "group=" + asked.Group + "&consumePosition=" + positions[asked.Position]
	for topic, filters := range topics {
		parameters += "&topic=" + topic
		for _, filter := range filters {
			parameters += "&filters=" + url.QueryEscape(filter)
		}
	}
	cfg, err := configured(asked, parameters)
	if err != nil {
		return nil, err
	}
	if asked.Session != "" {
		cfg.Consumer.BoundConsume = true
		cfg.Consumer.SessionKey = asked.Session
		cfg.Consumer.SourceCount = asked.Count
		cfg.Consumer.SelectBig = asked.Big
		cfg.Consumer.PartitionOffset = asked.Offsets
		for topic := range topics { // the client looks topics up there when it checks the offsets
			if _, found := cfg.Consumer.TopicFilters[topic]; !found {
				cfg.Consumer.TopicFilters[topic] = nil
			}
		}
	}
	consumer, err := client.NewConsumer(cfg)
	if err != nil {
		return nil, err
	}
	made := &reader{name: asked.Name, consumer: consumer, done: make(chan struct{})}
	mutex.Lock()
	consumers[asked.Name] = made
	mutex.Unlock()
	if asked.Auto {
		go made.run()
	} else {
		close(made.done)
	}
	return object{"client_id": consumer.GetClientID()}, nil
}

func (r *reader) run() {
	defer close(r.done)
	for !r.stopping.Load() {
		pulled := r.pull()
		if pulled["success"] != true {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		say(object{"event": "batch", "name": r.name, "partition": pulled["partition"],
			"offset": pulled["offset"], "messages": pulled["messages"]})
		confirmed := r.confirm(pulled["context"].(string), true)
		say(object{"event": "confirmed", "name": r.name, "partition": pulled["partition"],
			"success": confirmed["success"], "text": confirmed["text"]})
	}
}

func (r *reader) pull() object {
	result, err := r.consumer.GetMessage()
	if err != nil {
		return object{"success": false, "text": err.Error(), "code": -1}
	}
	return object{
		"success": true, "code": 200, "context": result.ConfirmContext,
		"partition": result.PeerInfo.PartitionKey, "offset": result.PeerInfo.CurrOffset,
		"messages": told(result.Messages),
	}
}

func (r *reader) confirm(context string, accept bool) object {
	result, err := r.consumer.Confirm(context, accept)
	if err != nil {
		return object{"success": false, "text": err.Error(), "code": -1}
	}
	return object{"success": true, "code": 200, "text": "", "offset": result.PeerInfo.CurrOffset}
}

func (r *reader) partitions() object {
	held := object{}
	for key, facts := range r.consumer.GetCurrConsumedInfo() {
		held[key] = facts.CurrOffset
	}
	return object{"partitions": held}
}

func (r *reader) close() {
	r.stopping.Store(true)
	<-r.done
	r.consumer.Close()
}

func told(messages []*client.Message) []object {
	all := []object{}
	for _, message := range messages {
		sum := sha256.Sum256(message.Data)
		one := object{
			"topic": message.Topic, "size": len(message.Data), "message_id": message.ID,
			"sha256": base64.StdEncoding.EncodeToString(sum[:]),
		}
		if len(message.Data) <= 200 {
			one["body"] = base64.StdEncoding.EncodeToString(message.Data)
		}
		var pairs []string
		for key, value := range message.Properties {
			if key == "$msgType$" {
				one["type"] = value
			} else if key == "$msgTime$" {
				one["time"] = value
			}
			pairs = append(pairs, key+"="+value)
		}
		sort.Strings(pairs) // the client keeps them in a map
		one["attributes"] = strings.Join(pairs, ",")
		all = append(all, one)
	}
	return all
}
