// A TubeMQ client that tests drive: one JSON request a line on standard input, one JSON answer or event a line on
// standard output. The same requests work with ../java/Peer.java; tests/compat/peers.py is the other end.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/apache/inlong/inlong-tubemq/tubemq-client-twins/tubemq-client-go/config"
)

type object map[string]any

type request struct {
	ID       int              `json:"id"`
	Do       string           `json:"do"`
	Name     string           `json:"name"`
	Master   string           `json:"master"`
	Group    string           `json:"group"`
	Topics   json.RawMessage  `json:"topics"`
	Topic    string           `json:"topic"`
	Prefix   string           `json:"prefix"`
	PaceMs   int              `json:"pace_ms"`
	Messages []outgoing       `json:"messages"`
	Async    bool             `json:"async"`
	Auto     bool             `json:"auto"`
	Position string           `json:"position"`
	Context  string           `json:"context"`
	Accept   bool             `json:"accept"`
	Beat     int              `json:"heartbeat_ms"`
	Session  string           `json:"session"`
	Count    int              `json:"count"`
	Big      bool             `json:"select_big"`
	Offsets  map[string]int64 `json:"offsets"`
}

var (
	saying    sync.Mutex
	mutex     sync.Mutex
	producers = map[string]*sender{}
	consumers = map[string]*reader{}
)

func say(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(text))
}

func main() {
	say(object{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 64<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		go answer(asked)
	}
}

func answer(asked request) {
	given, err := act(asked)
	if err != nil {
		given = object{"error": err.Error()}
	}
	given["ok"] = err == nil
	given["id"] = asked.ID
	say(given)
}

func act(asked request) (object, error) {
	mutex.Lock()
	producer, consumer := producers[asked.Name], consumers[asked.Name]
	mutex.Unlock()
	switch asked.Do {
	case "open_producer":
		return openProducer(asked)
	case "open_consumer":
		return openConsumer(asked)
	case "send":
		return producer.send(asked)
	case "flood":
		go producer.run(asked)
		return object{}, nil
	case "flood_stop":
		return producer.stop(), nil
	case "pull":
		return consumer.pull(), nil
	case "confirm":
		return consumer.confirm(asked.Context, asked.Accept), nil
	case "partitions":
		return consumer.partitions(), nil
	case "close":
		if consumer != nil {
			consumer.close()
		}
		return object{}, nil // a producer has no public close
	}
	return nil, errors.New("the Go client cannot " + asked.Do)
}

// configured makes the client's configuration from its own kind of address.
func configured(asked request, parameters string) (*config.Config, error) {
	beat := asked.Beat
	if beat == 0 {
		beat = 1000
	}
	log := os.Getenv("PEER_LOG")
	level := os.Getenv("PEER_LEVEL")
	if level == "" {
		level = "error"
	}
	return config.ParseAddress(fmt.Sprintf(
		"%s?%s&heartbeatInterval=%d&heartbeatMaxRetryTimes=2&heartbeatAfterFail=1000&msgNotFoundWait=100"+
			"&logPath=%s&logLevel=%s",
		asked.Master, parameters, beat, log, level))
}
