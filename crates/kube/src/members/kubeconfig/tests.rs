//! Fields of a kubeconfig that are read, and fields that are errors.

use serde_json::json;

use super::{
    super::sample::{base64, certificate, key, kubeconfig as good},
    *,
};

fn parse(document: &Value) -> Result<Access, KubeconfigError> {
    Access::parse(document.to_string().as_bytes(), false)
}

/// The kubeconfig with one value set, by its pointer; the last part may be new.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[field] = value;
    document
}

fn without(pointer: &str) -> Value {
    let mut document = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    parent.as_object_mut().unwrap().remove(field);
    document
}

const CLUSTER_AT: &str = "/clusters/0/cluster";
const USER_AT: &str = "/users/0/user";

#[test]
fn a_server_its_certificate_authority_and_a_token_are_read() {
    let expected = Access {
        server: "https://member1.example:6443/".parse().unwrap(),
        tls_server_name: None,
        certificate_authority: vec![vec![1, 2, 3]],
        credentials: Credentials::Token("t0p-s3cret".to_owned()),
    };
    assert_eq!(parse(&good()), Ok(expected.clone()));
    let yaml = format!(
        "current-context: it\nclusters:\n- name: c\n  cluster:\n    server: https://member1.example:6443\n    \
         certificate-authority-data: {}\ncontexts:\n- name: it\n  context: {{cluster: c, user: u}}\nusers:\n\
         - name: u\n  user: {{token: t0p-s3cret}}\n",
        certificate()
    );
    assert_eq!(Access::parse(yaml.as_bytes(), false), Ok(expected));
}

#[test]
fn a_client_certificate_with_its_key_is_read() {
    let user = json!({"client-certificate-data": certificate(), "client-key-data": key()});
    let access = parse(&with(USER_AT, user)).unwrap();
    let is_certificate = matches!(access.credentials, Credentials::Certificate { .. });
    assert!(is_certificate, "{access:?}");
    let named = with(
        "/clusters/0/cluster/tls-server-name",
        json!("other.example"),
    );
    let name = parse(&named).unwrap().tls_server_name;
    assert_eq!(name.as_deref(), Some("other.example"));
}

/// A field, its value, and a part of the error.
type Row = (&'static str, Value, &'static str);

fn assert_errors(at: &str, rows: impl IntoIterator<Item = Row>) {
    for (field, value, words) in rows {
        let error = parse(&with(&format!("{at}/{field}"), value)).unwrap_err();
        let place = at.trim_start_matches('/').replace("/0/", "[0].");
        assert_eq!(error.field, format!("{place}.{field}"), "{error}");
        assert!(error.problem.contains(words), "{error}");
    }
}

#[test]
fn a_user_that_runs_commands_reads_files_or_impersonates_is_an_error() {
    let command = "run a command";
    let file = "names a file";
    let other = "impersonates another user";
    let rows = [
        (
            "exec",
            json!({"command": "sh", "args": ["-c", "id"]}),
            command,
        ),
        ("auth-provider", json!({"name": "gcp"}), command),
        ("tokenFile", json!("/var/run/secrets/token"), file),
        ("client-certificate", json!("/a"), file),
        ("client-key", json!("/a"), file),
        ("username", json!("me"), "no longer accepted"),
        ("password", json!("x"), "no longer accepted"),
        ("as", json!("system:admin"), other),
        ("as-uid", json!("1"), other),
        ("as-groups", json!(["system:masters"]), other),
        ("as-user-extra", json!({"a": ["b"]}), other),
        ("impersonate", json!("x"), "not known to be safe"),
        ("token", json!("two\nlines"), "not a bearer token"),
        ("token", json!("x".repeat(20_000)), "not a bearer token"),
    ];
    assert_errors(USER_AT, rows);
    let both = parse(&with("/users/0/user/client-key-data", json!(key()))).unwrap_err();
    let expected = "users[0].user.token is given beside a client certificate; keep one of the two";
    assert_eq!(both.to_string(), expected);
}

#[test]
fn a_cluster_that_is_insecure_or_invalid_is_an_error() {
    let authority = "certificate-authority-data";
    let pose = "pose as the member";
    let rows = [
        (
            "certificate-authority",
            json!("/etc/passwd"),
            "names a file",
        ),
        ("insecure-skip-tls-verify", json!(true), pose),
        ("insecure-skip-tls-verify", json!("true"), pose),
        ("proxy-url", json!("http://evil.example"), "through a proxy"),
        ("servr", json!("x"), "not known to be safe"),
        ("server", json!("http://member1.example"), "not encrypted"),
        ("server", json!("https://169.254.169.254"), "metadata"),
        ("server", json!("https://127.0.0.1:6443"), "own address"),
        ("server", json!(6443), "not a string"),
        ("tls-server-name", json!("a b"), "neither a DNS name"),
        (authority, json!("%%%"), "not base64"),
        (authority, json!(base64("hi")), "no certificate"),
    ];
    assert_errors(CLUSTER_AT, rows);
}

#[test]
fn refused_fields_without_effect_are_accepted() {
    for (pointer, value) in [
        ("/clusters/0/cluster/insecure-skip-tls-verify", json!(false)),
        ("/clusters/0/cluster/proxy-url", json!("")),
        ("/users/0/user/exec", Value::Null),
        ("/clusters/0/cluster/disable-compression", json!(true)),
        (
            "/clusters/0/cluster/extensions",
            json!([{"name": "x", "extension": {}}]),
        ),
    ] {
        assert!(parse(&with(pointer, value)).is_ok(), "{pointer}");
    }
}

#[test]
fn missing_and_ambiguous_fields_are_named() {
    let twice = |list: &str| {
        let mut document = good();
        let entry = document[list][0].clone();
        document[list].as_array_mut().unwrap().push(entry);
        document
    };
    for (document, expected) in [
        (
            without("/current-context"),
            "current-context is missing; add it",
        ),
        (
            with("/current-context", json!("other")),
            "current-context does not name the context; correct it",
        ),
        (
            with("/contexts/0/context/user", json!("v")),
            "contexts[0].context.user does not name the user of this kubeconfig; correct it",
        ),
        (
            without("/users/0/user/token"),
            "users[0].user.token is missing, and so is client-certificate-data; add one of them",
        ),
        (
            without("/clusters/0/cluster/server"),
            "clusters[0].cluster.server is missing; add it",
        ),
        (
            without("/clusters/0/cluster/certificate-authority-data"),
            "clusters[0].cluster.certificate-authority-data is missing; the hub trusts a member by its own authority only, so add it",
        ),
        (
            with("/users/0/user", json!({"client-key-data": key()})),
            "users[0].user.client-certificate-data is missing beside its key; add it",
        ),
        (
            with(
                "/users/0/user",
                json!({"client-certificate-data": certificate()}),
            ),
            "users[0].user.client-key-data is missing beside its certificate; add it",
        ),
        (
            with("/users/0/user", json!("token")),
            "users[0].user is not a mapping; expected one",
        ),
    ] {
        assert_eq!(parse(&document).unwrap_err().to_string(), expected);
    }
    for list in ["clusters", "contexts", "users"] {
        let error = parse(&twice(list)).unwrap_err();
        assert_eq!(error.field, list);
        assert!(
            error.problem.starts_with("has 2 entries, expected one"),
            "{error}"
        );
    }
}

#[test]
fn the_error_of_an_invalid_text_does_not_repeat_it() {
    let too_large = vec![b' '; SIZE_MAX + 1];
    for (text, words) in [
        (&b"t0p-s3cret"[..], "is not a mapping"),
        (b"a: [t0p-s3cret", "is not valid YAML"),
        (b"token: t0p-s3cret\ntoken: t0p-s3cret", "is not valid YAML"),
        (b"t0p-s3cret-as-a-key: 1", "not known to be safe"),
        (b"\"t0p s3cret\": 1", "odd name"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"", "is not a mapping"),
        (&too_large, "has 65537 bytes"),
    ] {
        let error = Access::parse(text, false).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("t0p s3cret"), "{error}");
    }
}

#[test]
fn no_debug_output_shows_a_secret() {
    let shown = format!("{:?}", parse(&good()).unwrap());
    assert!(
        shown.contains("member1.example") && !shown.contains("s3cret"),
        "{shown}"
    );
    let user = json!({"client-certificate-data": certificate(), "client-key-data": key()});
    let shown = format!("{:?}", parse(&with(USER_AT, user)).unwrap());
    assert!(shown.contains("Certificate(...)"), "{shown}");
}
