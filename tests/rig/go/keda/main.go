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
	"os"
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
	timeout                            time.Duration
}

func main() {
	var given options
	flag.StringVar(&given.address, "address", "", "host:port of the scaler")
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
		return errors.New("expected is-active, metric-spec, metrics METRIC, stream-is-active or stream-metric-spec")
	}
	object := &externalscaler.ScaledObjectRef{Name: given.name, Namespace: given.namespace}
	if err := json.Unmarshal([]byte(given.metadata), &object.ScalerMetadata); err != nil {
		return fmt.Errorf("-metadata: %w", err)
	}
	transport, err := transport(given)
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient(given.address, grpc.WithTransportCredentials(transport))
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
	}
	return fmt.Errorf("unknown call %q", arguments[0])
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
