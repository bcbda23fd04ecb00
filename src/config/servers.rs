//! The Prometheus servers of a configuration file: their URLs, and the files with the credentials for them.

use std::{collections::BTreeMap, path::PathBuf};

use http::header::{self, HeaderName, HeaderValue};
use serde::Deserialize;

use super::error::ConfigError;
use foretide_api::ports::{
    Authorization, CertificateFiles, CredentialFiles, CustomHeader, HistoryServer, Setting,
};

/// Headers that the client sets itself, or that have a field of their own.
const RESERVED: [HeaderName; 9] = [
    header::AUTHORIZATION,
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::ACCEPT_ENCODING,
    header::PROXY_AUTHORIZATION,
];

/// The sections `prometheus` and `prometheusEndpoints` of a configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSections {
    /// Server of the hub.
    pub hub: ServerSection,
    /// Servers of member clusters, by their names.
    pub named: BTreeMap<String, ServerSection>,
}

/// Address of one server, and credentials for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerSection {
    url: Option<String>,
    bearer_token_file: Option<PathBuf>,
    basic_auth: Option<BasicAuth>,
    #[serde(default)]
    headers: Vec<Header>,
    tls: Option<Tls>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BasicAuth {
    username: Option<String>,
    username_file: Option<PathBuf>,
    password_file: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Header {
    name: String,
    value: Option<String>,
    value_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    #[serde(rename = "caFile")]
    ca: Option<PathBuf>,
    #[serde(rename = "certFile")]
    certificate: Option<PathBuf>,
    #[serde(rename = "keyFile")]
    key: Option<PathBuf>,
}

/// All servers of a configuration.
#[derive(Debug)]
pub struct Servers {
    /// Server of the hub.
    pub hub: Option<HistoryServer>,
    /// Servers of member clusters, by their names.
    pub named: BTreeMap<String, HistoryServer>,
}

// === impl ServerSections ===

impl ServerSections {
    /// The servers, where URLs of flags or of the environment beat those of the file. Names in only one of them count,
    /// too.
    ///
    /// # Errors
    /// The first URL or section that cannot be used.
    pub fn with_urls(
        self,
        hub: Option<String>,
        endpoints: Vec<String>,
    ) -> Result<Servers, ConfigError> {
        let of_flag = hub.map(|url| (url, "--prometheus (or FORETIDE_PROMETHEUS)"));
        let of_file = self.hub.url.clone().map(|url| (url, "prometheus.url"));
        let url = of_flag.or(of_file);
        let credentials = self.hub.credentials("prometheus")?;
        let hub = match url {
            Some((url, origin)) => Some(server(origin.to_owned(), &url, credentials)?),
            None if credentials == CredentialFiles::default() => None,
            None => return Err(missing_url("prometheus")),
        };
        let mut urls = flag_urls(endpoints)?;
        let mut named = BTreeMap::new();
        for (name, section) in self.named {
            let field = format!("prometheusEndpoints.{name}");
            let of_file = section.url.clone().map(|url| (url, format!("{field}.url")));
            let of_flag = urls.remove(&name).map(|url| (url, flag_of(&name)));
            let (url, origin) = of_flag.or(of_file).ok_or_else(|| missing_url(&field))?;
            let credentials = section.credentials(&field)?;
            named.insert(name, server(origin, &url, credentials)?);
        }
        for (name, url) in urls {
            let server = server(flag_of(&name), &url, CredentialFiles::default())?;
            named.insert(name, server);
        }
        Ok(Servers { hub, named })
    }

    /// The files of all sections.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        std::iter::once(&mut self.hub)
            .chain(self.named.values_mut())
            .flat_map(ServerSection::files_mut)
    }
}

// === impl ServerSection ===

impl ServerSection {
    fn credentials(&self, field: &str) -> Result<CredentialFiles, ConfigError> {
        let tls = self.tls.as_ref();
        let ca = tls.and_then(|tls| tls.ca.clone());
        let pair = tls.map(|tls| (&tls.certificate, &tls.key));
        let client_certificate = match pair {
            None | Some((None, None)) => None,
            Some((Some(certificate), Some(key))) => Some(CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            Some(_) => {
                let field = format!("{field}.tls");
                return Err(section(&field, "expected certFile and keyFile, or neither"));
            }
        };
        let headers = self.headers.iter().enumerate().map(|(i, header)| {
            let field = format!("{field}.headers[{i}]");
            if self
                .headers
                .iter()
                .take(i)
                .any(|other| other.name.eq_ignore_ascii_case(&header.name))
            {
                return Err(section(&field, "expected each header once"));
            }
            header.checked(&field)
        });
        let credentials = CredentialFiles {
            authorization: self.authorization(field)?,
            headers: headers.collect::<Result<_, _>>()?,
            ca,
            client_certificate,
        };
        Ok(credentials)
    }

    fn authorization(&self, field: &str) -> Result<Option<Authorization>, ConfigError> {
        match (&self.bearer_token_file, &self.basic_auth) {
            (None, None) => Ok(None),
            (Some(token), None) => Ok(Some(Authorization::Bearer {
                token: token.clone(),
            })),
            (None, Some(basic)) => {
                let field = format!("{field}.basicAuth");
                let username = one_of(basic.username.as_ref(), basic.username_file.as_ref())
                    .ok_or_else(|| section(&field, "expected either username or usernameFile"))?;
                // In the header the first colon ends the username (RFC 7617).
                if matches!(&username, Setting::Value(name) if name.contains(':')) {
                    let message = "expected a username without a colon";
                    return Err(section(&format!("{field}.username"), message));
                }
                Ok(Some(Authorization::Basic {
                    username,
                    password: basic.password_file.clone(),
                }))
            }
            (Some(_), Some(_)) => Err(section(
                field,
                "expected either bearerTokenFile or basicAuth, found both",
            )),
        }
    }

    fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let basic = self
            .basic_auth
            .iter_mut()
            .flat_map(|it| it.username_file.iter_mut().chain([&mut it.password_file]));
        let headers = self
            .headers
            .iter_mut()
            .filter_map(|header| header.value_file.as_mut());
        let tls = self.tls.iter_mut().flat_map(|tls| {
            let files = [&mut tls.ca, &mut tls.certificate, &mut tls.key];
            files.into_iter().flatten()
        });
        let token = self.bearer_token_file.iter_mut();
        token.chain(basic).chain(headers).chain(tls)
    }
}

// === impl Header ===

impl Header {
    fn checked(&self, field: &str) -> Result<CustomHeader, ConfigError> {
        let name = HeaderName::try_from(&self.name).map_err(|_| {
            let message = format!("expected the name of an HTTP header, got {:?}", self.name);
            section(&format!("{field}.name"), &message)
        })?;
        if RESERVED.contains(&name) {
            let message = format!(
                "{} is set by Foretide; see bearerTokenFile and basicAuth",
                self.name
            );
            return Err(section(&format!("{field}.name"), &message));
        }
        let value = one_of(self.value.as_ref(), self.value_file.as_ref())
            .ok_or_else(|| section(field, "expected either value or valueFile"))?;
        if let Setting::Value(text) = &value
            && HeaderValue::from_str(text).is_err()
        {
            let message = "expected text without line breaks and control characters";
            return Err(section(&format!("{field}.value"), message));
        }
        let name = self.name.clone();
        Ok(CustomHeader { name, value })
    }
}

fn one_of(value: Option<&String>, file: Option<&PathBuf>) -> Option<Setting> {
    match (value, file) {
        (Some(value), None) => Some(Setting::Value(value.clone())),
        (None, Some(file)) => Some(Setting::File(file.clone())),
        _ => None,
    }
}

/// Makes a server; `origin` is the field or the flag with the URL.
fn server(
    origin: String,
    url: &str,
    credentials: CredentialFiles,
) -> Result<HistoryServer, ConfigError> {
    HistoryServer::new(url, credentials).map_err(|problem| ConfigError::Server { origin, problem })
}

/// The flag with the URL of an endpoint.
fn flag_of(name: &str) -> String {
    format!("--prometheus-endpoint {name}=URL")
}

fn missing_url(field: &str) -> ConfigError {
    section(field, "expected a url")
}

fn section(field: &str, message: &str) -> ConfigError {
    ConfigError::Section {
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

/// The URLs of `--prometheus-endpoint`, by name.
fn flag_urls(values: Vec<String>) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut urls = BTreeMap::new();
    for value in values.into_iter().filter(|value| !value.is_empty()) {
        // A value without a name is not shown: it may be a part of a URL, and so of a password.
        let (name, url) = value
            .split_once('=')
            .map(|(name, url)| (name.trim(), url))
            .filter(|(name, _)| !name.is_empty() && !name.contains(['/', ':', '@']))
            .ok_or(ConfigError::EndpointName)?;
        if urls
            .insert(name.to_owned(), url.trim().to_owned())
            .is_some()
        {
            let name = name.to_owned();
            return Err(ConfigError::EndpointTwice { name });
        }
    }
    Ok(urls)
}
