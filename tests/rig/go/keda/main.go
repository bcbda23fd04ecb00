// Command keda-client asks an external scaler as KEDA does, with KEDA's own generated client, and prints each answer as
// one line of JSON. It exits with 1 and the status code and message on standard error if the scaler refuses.
//
//	keda-client -address 127.0.0.1:9000 -ca ca.pem -name web -namespace shop -metadata '{"autoscaler":"web"}' metrics foretide-floor-web
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type options struct {
	address, name, namespace, metadata string
	ca, certificate, key, serverName   string
	from                               string
	timeout                            time.Duration
}

func main() {
	var given options
	flag.StringVar(&given.address, "address", "", "host:port of the scaler")
	flag.StringVar(&given.from, "from", "", "address of this host to connect from, such as 127.0.0.2")
	flag.StringVar(&given.name, "name", "web", "name of the ScaledObject")
	flag.StringVar(&given.namespace, "namespace", "default", "namespace of the ScaledObject")
	flag.StringVar(&given.metadata, "metadata", "{}", "metadata of the trigger, as a JSON object")
	flag.StringVar(&given.ca, "ca", "", "file with the certificate authorities; without any TLS flag, plaintext")
	flag.StringVar(&given.certificate, "cert", "", "file with the client certificate")
	flag.StringVar(&given.key, "key", "", "file with the key of the client certificate")
	flag.StringVar(&given.serverName, "server-name", "", "name that the certificate of the scaler must have")
	flag.DurationVar(&given.timeout, "timeout", 0, "time for the whole command; zero is unlimited")
	flag.Parse()
	if err := run(given, flag.Args()); err != nil {
		if refused, ok := status.FromError(err); ok {
			fmt.Fprintf(os.Stderr, "%s: %s\n", refused.Code(), refused.Message())
		} else {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func run(given options, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("expected is-active, metric-spec, metrics METRIC, stream-is-active, stream-metric-spec or hold STREAMS AUTOSCALERS")
	}
	object := &externalscaler.ScaledObjectRef{Name: given.name, Namespace: given.namespace}
	if err := json.Unmarshal([]byte(given.metadata), &object.ScalerMetadata); err != nil {
		return fmt.Errorf("-metadata: %w", err)
	}
	transport, err := transport(given)
	if err != nil {
		return err
	}
	settings := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if given.from != "" {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(given.from)}}
		settings = append(settings, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	}
	connection, err := grpc.NewClient(given.address, settings...)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx := context.Background()
	if given.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, given.timeout)
		defer cancel()
		ctx = limited
	}
	return call(ctx, externalscaler.NewExternalScalerClient(connection), object, arguments)
}

// transport is plaintext without a TLS flag, as in KEDA.
func transport(given options) (credentials.TransportCredentials, error) {
	if given.ca == "" && given.certificate == "" {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{ServerName: given.serverName, MinVersion: tls.VersionTLS12}
	if given.ca != "" {
		text, err := os.ReadFile(given.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("no certificate in %s", given.ca)
		}
	}
	if given.certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.certificate, given.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

func call(ctx context.Context, scaler externalscaler.ExternalScalerClient, object *externalscaler.ScaledObjectRef, arguments []string) error {
	switch arguments[0] {
	case "is-active":
		return printed(scaler.IsActive(ctx, object))
	case "metric-spec":
		return printed(scaler.GetMetricSpec(ctx, object))
	case "metrics":
		if len(arguments) < 2 {
			return errors.New("metrics needs the name of a metric")
		}
		request := &externalscaler.GetMetricsRequest{ScaledObjectRef: object, MetricName: arguments[1]}
		return printed(scaler.GetMetrics(ctx, request))
	case "stream-is-active":
		stream, err := scaler.StreamIsActive(ctx, object)
		if err != nil {
			return err
		}
		return each(stream.Recv)
	case "stream-metric-spec":
		stream, err := scaler.StreamMetricSpec(ctx, object)
		if err != nil {
			return err
		}
		return each(stream.Recv)
	case "hold":
		return hold(ctx, scaler, object, arguments[1:])
	}
	return fmt.Errorf("unknown call %q", arguments[0])
}

// hold opens as many streams for the autoscalers NAME-0, NAME-1, ... in turn, reads the first answer of each, and then
// prints their number and holds them.
func hold(ctx context.Context, scaler externalscaler.ExternalScalerClient, object *externalscaler.ScaledObjectRef, arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("hold needs the number of streams and that of autoscalers")
	}
	streams, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	autoscalers, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	name := object.ScalerMetadata["autoscaler"]
	var held []interface {
		Recv() (*externalscaler.GetMetricSpecResponse, error)
	}
	for number := range streams {
		metadata := maps.Clone(object.ScalerMetadata)
		metadata["autoscaler"] = fmt.Sprintf("%s-%d", name, number%autoscalers)
		named := &externalscaler.ScaledObjectRef{Name: object.Name, Namespace: object.Namespace, ScalerMetadata: metadata}
		stream, err := scaler.StreamMetricSpec(ctx, named)
		if err != nil {
			return err
		}
		held = append(held, stream)
	}
	for _, stream := range held {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	fmt.Printf("{\"open\": %d}\n", streams)
	<-ctx.Done()
	return ctx.Err()
}

// each prints what a stream gives until it ends.
func each[T proto.Message](receive func() (T, error)) error {
	for {
		answer, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := printed(answer, err); err != nil {
			return err
		}
	}
}

func printed(answer proto.Message, err error) error {
	if err != nil {
		return err
	}
	line, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(answer)
	if err == nil {
		_, err = fmt.Printf("%s\n", line)
	}
	return err
}
