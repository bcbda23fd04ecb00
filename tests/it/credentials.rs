//! Credentials for Prometheus in files: their use, the errors of a file, and changes. The server is a proxy that wants
//! a token and a tenant, before a stub that answers every query.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use axum::{Router, routing::post};
use foretide_api::ports::{
    Authorization, CertificateFiles, CredentialFiles, CustomHeader, HistoryError, HistoryQuery,
    HistoryReader, HistoryServer, Setting,
};
use foretide_base::{clock::Clock, machine::Machine};
use foretide_models::Sample;
use foretide_prometheus::{Endpoints, Prometheus};
use jiff::{SignedDuration, Timestamp};
use rig::{Pki, TenantProxy};
use tokio::net::TcpListener;

/// The answer of a Prometheus that holds this one value.
fn answer(value: u32) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{}},"values":[[60,"{value}"]]}}]}}}}"#
    )
}

/// A stub of a Prometheus; returns its base URL.
async fn prometheus(value: u32) -> String {
    let handler = move || async move { answer(value) };
    let routes = Router::new().route("/api/v1/query_range", post(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

/// A proxy before two tenants, and a folder with the credentials for it.
struct World {
    proxy: TenantProxy,
    folder: PathBuf,
}

impl World {
    async fn start(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("secrets-{name}"));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        let pki = Pki::new().unwrap();
        fs::write(folder.join("ca.crt"), pki.ca_pem()).unwrap();
        let tenants = [("one", prometheus(1).await), ("two", prometheus(2).await)];
        let certificate = pki.server("proxy").unwrap();
        let proxy = TenantProxy::start(&certificate, "token-of-the-first-day", &tenants);
        let world = Self {
            proxy: proxy.await.unwrap(),
            folder,
        };
        world.write("token", "token-of-the-first-day\n");
        world.write("tenant", "one");
        world
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).unwrap();
    }

    /// A client with the token of this file.
    fn reader(&self, token: &str) -> Endpoints {
        reader(
            &self.proxy.url(),
            self.credentials(token),
            &Machine::system(),
        )
    }

    fn credentials(&self, token: &str) -> CredentialFiles {
        let header = CustomHeader {
            name: "X-Scope-OrgID".to_owned(),
            value: Setting::File(self.folder.join("tenant")),
        };
        CredentialFiles {
            authorization: Some(Authorization::Bearer {
                token: self.folder.join(token),
            }),
            headers: vec![header],
            ca: Some(self.folder.join("ca.crt")),
            client_certificate: None,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A client of the hub's server at this URL.
fn reader(url: &str, credentials: CredentialFiles, machine: &Machine) -> Endpoints {
    let server = HistoryServer::new(url, credentials).unwrap();
    Endpoints {
        hub: Some(Prometheus::new(&server, machine)),
        ..Endpoints::default()
    }
}

fn query() -> HistoryQuery {
    HistoryQuery {
        namespace: "shop".into(),
        endpoint: None,
        text: "up".into(),
    }
}

async fn read(reader: &Endpoints) -> Result<Vec<Sample>, HistoryError> {
    let at = Timestamp::from_second(60).unwrap();
    reader
        .range(&query(), at, at, SignedDuration::from_mins(1))
        .await
}

async fn value(reader: &Endpoints) -> String {
    read(reader).await.unwrap()[0].value.to_string()
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let world = World::start("broken").await;
    world.write("empty", " \n");
    world.write("lines", "two\nlines");
    fs::create_dir(world.folder.join("folder")).unwrap();
    fs::write(world.folder.join("large"), vec![b'x'; 5 << 20]).unwrap();
    let made = Command::new("mkfifo")
        .arg(world.folder.join("pipe"))
        .status();
    assert!(made.unwrap().success());
    for (file, message) in [
        ("absent", "absent: No such file or directory"),
        ("empty", "empty is empty; expected a credential"),
        ("lines", "lines has characters that are not allowed in an"),
        ("folder", "folder is not a file"),
        ("pipe", "pipe is not a file"),
        ("large", "large has more than 4 MiB"),
    ] {
        let error = read(&world.reader(file)).await.unwrap_err();
        assert!(matches!(error, HistoryError::Credentials { .. }), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[tokio::test]
async fn a_folder_that_the_kubelet_swaps_is_followed_and_the_last_usable_token_stays() {
    let world = World::start("swap").await;
    let days = ["first", "second"].map(|day| world.folder.join(day));
    for (folder, day) in days.iter().zip(["first", "second"]) {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("token"), format!("token-of-the-{day}-day")).unwrap();
    }
    // The kubelet makes each file a link through a link to a folder, and changes the latter.
    symlink("first", world.folder.join("..data")).unwrap();
    symlink("..data/token", world.folder.join("linked")).unwrap();
    let reader = world.reader("linked");
    assert_eq!(value(&reader).await, "1");

    world.proxy.accept("token-of-the-second-day");
    let refused = read(&reader).await.unwrap_err();
    assert!(
        matches!(refused, HistoryError::Unauthorized { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("Bearer [hidden]"), "{refused}");
    fs::remove_file(days[0].join("token")).unwrap();
    let refused = read(&reader).await.unwrap_err().to_string();
    assert!(
        refused.contains("these are the last usable credentials, because cannot read"),
        "{refused}"
    );
    assert!(reader.servers()[0].credential_problem.is_some());
    symlink("second", world.folder.join("..data_tmp")).unwrap();
    fs::rename(world.folder.join("..data_tmp"), world.folder.join("..data")).unwrap();
    assert_eq!(value(&reader).await, "1");
    assert_eq!(reader.servers()[0].credential_problem, None);
}

#[tokio::test]
async fn another_tenant_is_another_version_and_another_token_is_not() {
    let world = World::start("tenant").await;
    let reader = world.reader("token");
    assert_eq!(value(&reader).await, "1");
    assert_eq!(reader.version(&query()), 0);

    world.proxy.accept("token-of-the-second-day");
    assert!(read(&reader).await.is_err());
    world.write("token", "token-of-the-second-day");
    assert_eq!(value(&reader).await, "1");
    assert_eq!(reader.version(&query()), 0);

    world.write("tenant", "two");
    world.proxy.accept("token-of-the-third-day");
    assert!(read(&reader).await.is_err());
    world.write("token", "token-of-the-third-day");
    assert_eq!(value(&reader).await, "2");
    assert_eq!(reader.version(&query()), 1);
    let headers = reader.headers_in_words(&query()).unwrap();
    assert!(headers.starts_with("X-Scope-OrgID of "), "{headers}");
}

#[tokio::test]
async fn a_new_certificate_is_in_force_when_its_key_is_there_and_the_old_pair_until_then() {
    let world = World::start("pair").await;
    let pki = Pki::new().unwrap();
    let [old, new] = [&(-1..9), &(-1..3)].map(|days| pki.client_valid("foretide", days).unwrap());
    world.write("client.crt", &old.certificate);
    world.write("client.key", &old.key);
    let credentials = CredentialFiles {
        client_certificate: Some(CertificateFiles {
            certificate: world.folder.join("client.crt"),
            key: world.folder.join("client.key"),
        }),
        ..world.credentials("token")
    };
    let clock = Clock::standing_at(Clock::system().now());
    let machine = Machine::system().with_clock(clock.clone());
    let reader = reader(&world.proxy.url(), credentials, &machine);
    let expiry = async |problem: Option<&str>| {
        // Files are read again after some seconds.
        clock.advance(Duration::from_mins(1));
        assert_eq!(value(&reader).await, "1");
        let health = reader.servers().remove(0);
        let said = health.credential_problem.unwrap_or_default();
        assert!(said.contains(problem.unwrap_or_default()) && said.is_empty() == problem.is_none());
        let mut all = health.expiries.into_iter();
        let own = all.find(|one| one.credential == "client certificate");
        own.unwrap().expires
    };
    let before = expiry(None).await;
    world.write("client.crt", &new.certificate);
    assert_eq!(expiry(Some("cannot be used together")).await, before);
    world.write("client.key", &new.key);
    assert!(expiry(None).await < before);
}

#[tokio::test]
async fn the_expiry_of_a_token_and_of_certificates_is_known() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let world = World::start("expiry").await;
    let payload = URL_SAFE_NO_PAD.encode(r#"{"iat":1767225600,"exp":1767312000.5}"#);
    let token = format!("header.{payload}.signature");
    world.write("token", &token);
    world.proxy.accept(&token);
    let reader = world.reader("token");
    assert_eq!(value(&reader).await, "1");
    let health = reader.servers().remove(0);
    let expiries: Vec<_> = health.expiries.iter().map(|one| one.credential).collect();
    assert_eq!(
        expiries,
        [
            "certificate authority",
            "bearer token",
            "server certificate"
        ]
    );
    let token = health.expiries[1];
    assert_eq!(token.expires.as_second(), 1_767_312_000);
    assert_eq!(token.valid_from.unwrap().as_second(), 1_767_225_600);
}

#[tokio::test]
async fn plain_http_at_an_https_url_is_told() {
    let world = World::start("plain").await;
    let url = prometheus(1).await.replace("http://", "https://");
    let credentials = CredentialFiles {
        ca: Some(world.folder.join("ca.crt")),
        ..CredentialFiles::default()
    };
    let reader = reader(&url, credentials, &Machine::system());
    let error = read(&reader).await.unwrap_err();
    assert!(matches!(error, HistoryError::Tls { .. }), "{error}");
    assert!(
        error.to_string().contains("its answer is not TLS"),
        "{error}"
    );
}
