//! The configuration as a client meets it in a handshake: versions, protocols and client certificates.

use rig::{Identity, Pki, RunFolder};
use rustls::{ClientConfig, ProtocolVersion, pki_types::PrivateKeyDer};
use tokio::io::duplex;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::certificates::authority::Authority;

/// Results of a handshake on its two sides.
#[derive(Debug, PartialEq, Eq)]
struct Handshake {
    version: Option<ProtocolVersion>,
    protocol: Option<Vec<u8>>,
    /// The certificate that the client presented.
    client: Option<CertificateDer<'static>>,
}

fn der(identity: &Identity) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()
}

/// A server whose certificate was signed by this authority.
fn server(authority: &Authority, clients: &Clients) -> ServerConfig {
    let names = ["foretide-adapter.foretide-system.svc".to_owned()];
    let now = Clock::system().now();
    let (pair, _) = authority
        .sign(&names, now, SignedDuration::from_hours(1))
        .unwrap();
    server_config(pair, clients).unwrap()
}

async fn handshake(
    server: ServerConfig,
    trusted: &Authority,
    client: Option<&Identity>,
) -> Result<Handshake, String> {
    let mut roots = RootCertStore::empty();
    let pem = trusted.certificate.pem.as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(pem).unwrap())
        .unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![der(identity)], key)
                .unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (near, far) = duplex(16 * 1024);
    let name = ServerName::try_from("foretide-adapter.foretide-system.svc").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let connect = connector.connect(name, near);
    let accept = TlsAcceptor::from(Arc::new(server)).accept(far);
    let (connected, accepted) = futures::future::join(connect, accept).await;
    connected.map_err(|error| error.to_string())?;
    let accepted = accepted.map_err(|error| error.to_string())?;
    let (_, session) = accepted.get_ref();
    let client = session.peer_certificates();
    Ok(Handshake {
        version: session.protocol_version(),
        protocol: session.alpn_protocol().map(<[u8]>::to_vec),
        client: client.and_then(|chain| chain.first().cloned().map(CertificateDer::into_owned)),
    })
}

fn authority() -> Authority {
    let (now, day) = (Clock::system().now(), SignedDuration::from_hours(24));
    Authority::new("foretide-adapter", now, day).unwrap()
}

#[tokio::test]
async fn the_certificate_of_a_client_is_asked_for_and_not_judged_where_the_handler_does() {
    let ours = authority();
    let someone = Pki::new().unwrap().client("someone", None).unwrap();
    for (clients, sent, seen) in [
        (Clients::None, Some(&someone), None),
        (Clients::Any, None, None),
        (Clients::Any, Some(&someone), Some(der(&someone))),
    ] {
        let found = handshake(server(&ours, &clients), &ours, sent).await;
        let expected = Handshake {
            version: Some(ProtocolVersion::TLSv1_3),
            protocol: Some(b"h2".to_vec()),
            client: seen,
        };
        assert_eq!(found, Ok(expected), "{clients:?}");
    }
}

#[tokio::test]
async fn a_required_client_certificate_is_valid_and_of_an_authority_of_the_file() {
    let (ours, pki, other) = (authority(), Pki::new().unwrap(), Pki::new().unwrap());
    let pem = CertificateDer::from_pem_slice(pki.ca_pem().as_bytes());
    let clients = Clients::SignedBy(vec![pem.unwrap()]);
    let keda = pki.client("keda", None).unwrap();
    let expired = pki.client_valid("keda", &(-9..-2)).unwrap();
    let foreign = other.client("keda", None).unwrap();
    let seen = handshake(server(&ours, &clients), &ours, Some(&keda)).await;
    assert_eq!(seen.unwrap().client, Some(der(&keda)));
    for refused in [None, Some(&expired), Some(&foreign)] {
        let seen = handshake(server(&ours, &clients), &ours, refused).await;
        assert!(seen.is_err(), "{seen:?}");
    }
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_refuses_the_server() {
    let (ours, other) = (authority(), authority());
    let seen = handshake(server(&ours, &Clients::Any), &other, None).await;
    assert!(seen.unwrap_err().contains("invalid peer certificate"));
}

#[tokio::test]
async fn a_broken_file_leaves_the_last_pair() {
    let pki = Pki::new().unwrap();
    let folder = RunFolder::new("certificate-files").unwrap();
    let write = |name: &str, text: &str| folder.write(name, text).unwrap();
    let write_pair = |pair: &Identity| CertificateFiles {
        certificate: write("tls.crt", &pair.certificate),
        key: write("tls.key", &pair.key),
    };
    let [first, second] = ["first", "second"].map(|name| pki.server(name).unwrap());
    let certificates = Certificates::new(
        &Connection::over(Objects::new().client(None)),
        CertificateSource::Files(write_pair(&first)),
        ClientCertificates::None,
        Clock::system(),
    );
    let presented = async || certificates.state.lock().await.presented.clone();
    assert!(certificates.round(None).await);
    let good = presented().await;
    assert!(good.is_some());
    for broken in ["", "no certificate", pki.ca_pem(), &second.certificate] {
        write("tls.crt", broken);
        assert!(!certificates.round(None).await, "{broken}");
        assert_eq!(presented().await, good, "{broken}");
    }
    write_pair(&second);
    assert!(certificates.round(None).await);
    assert_ne!(presented().await, good);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ours = authority();
    let names = ["a".to_owned()];
    let lasts = SignedDuration::from_hours(1);
    let sign = || ours.sign(&names, Clock::system().now(), lasts).unwrap().0;
    let mixed = ServingPair {
        key: sign().key,
        ..sign()
    };
    let error = server_config(mixed, &Clients::Any).unwrap_err();
    let expected = "expected a certificate and the key that belongs to it";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_authority_is_the_same_after_it_was_stored() {
    let ours = authority();
    let (certificate, key) = (&ours.certificate.pem, ours.key_pem());
    let loaded = Authority::load(certificate, &key).unwrap();
    assert_eq!(loaded, ours);
    assert_eq!(loaded.key_pem(), key);
    let names = ["foretide-adapter.foretide-system.svc".to_owned()];
    let now = Clock::system().now();
    let lasts = SignedDuration::from_hours(1);
    let (pair, validity) = loaded.sign(&names, now, lasts).unwrap();
    assert_eq!(trusts(certificate, &pair.chain[0], now), Ok(()));
    assert_eq!(validity.until, now + lasts);
    assert!(!format!("{ours:?}").contains("PRIVATE"));
    assert!(Authority::load(certificate, &authority().key_pem()).is_err());
}
