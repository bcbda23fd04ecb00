//! Certificates in files: a server presents the newest pair that can be used.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use foretide_api::ports::{CertificateFiles, CertificateSource, ClientCertificates};
use foretide_base::{clock::Clock, machine::Machine};
use foretide_kube::cluster::Connection;
use foretide_servers::certificates::Certificates;
use rig::{Identity, Pki};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{io::duplex, sync::watch};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Kubeconfig of a cluster that gets no request.
const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: 'http://127.0.0.1:9'}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
";

/// A folder with a pair, and perhaps the authority of the clients.
struct Files {
    pki: Pki,
    folder: PathBuf,
}

impl Files {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("certificates-{name}"));
        fs::create_dir_all(&folder).unwrap();
        let files = Self {
            pki: Pki::new().unwrap(),
            folder,
        };
        files.write("kubeconfig", KUBECONFIG);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        // Replaced at once, as by a kubelet: a reader sees the old content or the new one.
        fs::write(self.path("next"), text).unwrap();
        fs::rename(self.path("next"), self.path(name)).unwrap();
    }

    /// Writes the pair of a server of this name.
    fn serve_as(&self, name: &str) {
        let Identity { certificate, key } = self.pki.server(name).unwrap();
        self.write("tls.crt", &certificate);
        self.write("tls.key", &key);
    }

    /// The certificates of a server that reads the files whenever all other tasks wait.
    async fn certificates(&self, clients: ClientCertificates) -> Certificates {
        let kubeconfig = self.path("kubeconfig");
        let connection =
            Connection::from_kubeconfig(Some(&kubeconfig), None, &Machine::system()).await;
        let source = CertificateSource::Files(CertificateFiles {
            certificate: self.path("tls.crt"),
            key: self.path("tls.key"),
        });
        let clock = Clock::simulated(Clock::system().now());
        Certificates::new(&connection.unwrap(), source, clients, clock)
    }

    /// Returns whether a client of a server with this name comes through the handshake.
    async fn accepts(
        &self,
        config: Arc<ServerConfig>,
        name: &str,
        client: Option<&Identity>,
    ) -> bool {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.pki.ca_pem().as_bytes());
        roots.add(ca.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let client_config = match client {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
        };
        let (near, far) = duplex(16 * 1024);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(client_config));
        let accepted = TlsAcceptor::from(config).accept(far);
        let (connected, accepted) = tokio::join!(connector.connect(name, near), accepted);
        connected.is_ok() && accepted.is_ok()
    }
}

/// The next configuration.
async fn next(configs: &mut watch::Receiver<Option<Arc<ServerConfig>>>) -> Arc<ServerConfig> {
    configs.changed().await.unwrap();
    configs.borrow_and_update().clone().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_is_presented() {
    let files = Files::new("pair");
    let certificates = files.certificates(ClientCertificates::None).await;
    let mut configs = certificates.configs();
    assert!(configs.borrow().is_none());
    let steps = async {
        // Without files there is no configuration; then they appear.
        files.serve_as("first");
        let first = next(&mut configs).await;
        assert!(files.accepts(Arc::clone(&first), "first", None).await);
        assert!(!files.accepts(first, "second", None).await);
        files.serve_as("second");
        let second = next(&mut configs).await;
        assert!(files.accepts(second, "second", None).await);
    };
    tokio::select! {
        () = certificates.run(None) => {}
        () = steps => {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_authority_of_required_client_certificates_is_read_again() {
    let files = Files::new("clients");
    let (old, new) = (Pki::new().unwrap(), Pki::new().unwrap());
    let [of_old, of_new] = [&old, &new].map(|pki| pki.client("keda", None).unwrap());
    files.serve_as("first");
    files.write("clients.crt", old.ca_pem());
    let clients = ClientCertificates::SignedBy(files.path("clients.crt"));
    let certificates = files.certificates(clients).await;
    let mut configs = certificates.configs();
    let accepts = async |config: &Arc<ServerConfig>| {
        let mut accepted = Vec::new();
        for client in [None, Some(&of_old), Some(&of_new)] {
            accepted.push(files.accepts(Arc::clone(config), "first", client).await);
        }
        accepted
    };
    let steps = async {
        let before = next(&mut configs).await;
        assert_eq!(accepts(&before).await, [false, true, false]);
        files.write("clients.crt", &format!("{}{}", old.ca_pem(), new.ca_pem()));
        let both = next(&mut configs).await;
        assert_eq!(accepts(&both).await, [false, true, true]);
        files.write("clients.crt", new.ca_pem());
        let after = next(&mut configs).await;
        assert_eq!(accepts(&after).await, [false, false, true]);
    };
    tokio::select! {
        () = certificates.run(None) => {}
        () = steps => {}
    }
}
