//! Certificates of one cluster: a CA that lives as long as the cluster, servers on loopback, and named clients.
//! Nothing here is secret or lasting.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::Result;

/// A certificate authority, and what it signs.
pub(crate) struct Pki {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

/// A certificate and its key, both PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Pki {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "rig");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let ca_pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            ca_pem,
        })
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A server on loopback, also under the names by which the API server reaches its services.
    pub(crate) fn server(&self, name: &str) -> Result<Identity> {
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
        self.sign(&params)
    }

    /// A client that the API server knows as `user`, in `group` when there is one.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
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
