//! Certificates of one cluster: a CA that lives as long as the cluster, servers on loopback, and named clients.
//! Nothing here is secret or lasting.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::Result;

/// A certificate authority, which signs certificates.
#[derive(Debug)]
pub struct Pki {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

/// A certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Private key of the certificate.
    pub key: String,
}

/// The days in which a certificate is valid, from today: `-2..-1` has expired yesterday.
pub type Validity = std::ops::Range<i64>;

impl Pki {
    /// A new authority.
    ///
    /// # Errors
    /// As those of rcgen.
    pub fn new() -> Result<Self> {
        let params = authority()?;
        let key = KeyPair::generate()?;
        let ca_pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            ca_pem,
        })
    }

    /// The certificate and the key of an authority that is valid for these days only.
    ///
    /// # Errors
    /// As those of rcgen.
    pub fn authority_valid(days: &Validity) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let certificate = valid(authority()?, days).self_signed(&key)?.pem();
        Ok(Identity {
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// Certificate of the authority, for everyone who trusts it.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A server on loopback, also under the names by which the API server reaches its services.
    ///
    /// # Errors
    /// As those of rcgen.
    pub fn server(&self, name: &str) -> Result<Identity> {
        self.sign(&server(name)?)
    }

    /// A server like that of [`Pki::server`], with a certificate that is valid for these days only.
    ///
    /// # Errors
    /// As those of rcgen.
    pub fn server_valid(&self, name: &str, days: &Validity) -> Result<Identity> {
        self.sign(&valid(server(name)?, days))
    }

    /// A client that the API server knows as `user`, in `group` when there is one.
    ///
    /// # Errors
    /// As those of rcgen.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        self.sign(&client(user, group)?)
    }

    /// A client like that of [`Pki::client`], with a certificate that is valid for these days only.
    ///
    /// # Errors
    /// As those of rcgen.
    pub fn client_valid(&self, user: &str, days: &Validity) -> Result<Identity> {
        self.sign(&valid(client(user, None)?, days))
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity {
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// A kubeconfig with everything inside, for a user described by `user` (the object of that name
    /// in a kubeconfig).
    pub(crate) fn kubeconfig(&self, server: &str, user: &Value) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{"name": "rig", "user": user}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
            "current-context": "rig",
        });
        // JSON is YAML.
        format!("{config:#}\n")
    }
}

impl Identity {
    /// The `user` object of a kubeconfig.
    pub(crate) fn user(&self) -> Value {
        json!({
            "client-certificate-data": STANDARD.encode(&self.certificate),
            "client-key-data": STANDARD.encode(&self.key),
        })
    }
}

fn authority() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "rig");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn server(name: &str) -> Result<CertificateParams> {
    let hosts = [
        "127.0.0.1",
        "10.0.0.1",
        "localhost",
        "kubernetes.default.svc",
        name,
    ];
    let mut params = CertificateParams::new(hosts.map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn client(user: &str, group: Option<&str>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

#[expect(
    clippy::disallowed_methods,
    reason = "TLS compares certificates with the real clock"
)]
fn valid(mut params: CertificateParams, days: &Validity) -> CertificateParams {
    let now = std::time::SystemTime::now();
    let day = |days: i64| {
        let span = std::time::Duration::from_secs(days.unsigned_abs() * 86_400);
        let at = if days < 0 {
            now.checked_sub(span)
        } else {
            now.checked_add(span)
        };
        at.unwrap_or(now).into()
    };
    params.not_before = day(days.start);
    params.not_after = day(days.end);
    params
}
