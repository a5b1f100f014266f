// Package security reads how a program connects: the environment variable KAFKA_SECURITY, a JSON object, or nothing for plaintext.
package security

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
)

// Settings are those of tests/compatibility/credentials.py.
type Settings struct {
	CA        string `json:"ca"`
	Identity  string `json:"identity"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Token     string `json:"token"`
}

// Read returns nil where the connection is plaintext.
func Read() (*Settings, error) {
	text := os.Getenv("KAFKA_SECURITY")
	if text == "" {
		return nil, nil
	}
	found := &Settings{}
	return found, json.Unmarshal([]byte(text), found)
}

// TLS trusts the authority, and shows the identity where there is one.
func (settings *Settings) TLS() (*tls.Config, error) {
	text, err := os.ReadFile(settings.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + settings.CA)
	}
	config := &tls.Config{RootCAs: pool}
	if settings.Identity != "" {
		identity, err := tls.LoadX509KeyPair(settings.Identity, settings.Identity)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{identity}
	}
	return config, nil
}
