//! The authorities of clients: which object is watched, and what its fields mean.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use simkube::SimKube;

use super::super::KubeClientAuthorities;
use crate::api_server::Connection;
use foretide_api::ports::{ClientAuthorities, RequestHeader};
use simkube::client::simulated_unless;

const NAME: &str = "extension-apiserver-authentication";

fn config_map(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": NAME}, "data": data,
    })
}

fn server(data: &Value) -> SimKube {
    let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
    server.create(&config_map(data));
    server
}

/// A reader of the authorities of a server that answers only requests for them by name.
fn reader(server: &SimKube) -> KubeClientAuthorities {
    let by_name = format!("fieldSelector=metadata.name%3D{NAME}");
    let client = simulated_unless(server, None, move |line| !line.contains(&by_name));
    KubeClientAuthorities::new(Connection::over(client))
}

fn all() -> Value {
    json!({
        "client-ca-file": "users",
        "requestheader-client-ca-file": "proxies",
        "requestheader-allowed-names": r#"["front-proxy-client"]"#,
        "requestheader-username-headers": r#"["X-Remote-User"]"#,
        "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
        "requestheader-group-headers": r#"["X-Remote-Group"]"#,
        "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
    })
}

fn expected() -> ClientAuthorities {
    let one = |text: &str| vec![text.to_owned()];
    ClientAuthorities {
        client_ca: Some("users".to_owned()),
        request_header: Some(RequestHeader {
            ca: "proxies".to_owned(),
            allowed_names: one("front-proxy-client"),
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_header_prefixes: one("X-Remote-Extra-"),
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_readable_authorities_count() {
    let server = server(&all());
    let write = |data| {
        let path = format!("/api/v1/namespaces/kube-system/configmaps/{NAME}");
        let (code, answer) = server.ask("admin", "PUT", &path, &config_map(&data));
        assert_eq!(code, 200, "{answer}");
    };
    let authorities = reader(&server);
    let mut newest = authorities.authorities();
    let new = ClientAuthorities {
        client_ca: Some("new".to_owned()),
        request_header: None,
    };
    let reads = async {
        newest.changed().await.unwrap();
        assert_eq!(newest.borrow_and_update().as_deref(), Some(&expected()));
        write(json!({"client-ca-file": "new"}));
        newest.changed().await.unwrap();
        assert_eq!(newest.borrow_and_update().as_deref(), Some(&new));
        write(json!({"requestheader-allowed-names": "front-proxy-client"}));
        while authorities.watch().unreadable == 0 {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = authorities.run() => {}
        () = reads => {}
        () = tokio::time::sleep(Duration::from_hours(1)) => panic!("they are not read"),
    }
    assert_eq!(newest.borrow().as_deref(), Some(&new));
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_missing_trusts_nobody() {
    let server = server(&json!({"requestheader-username-headers": r#"["X-Remote-User"]"#}));
    let authorities = reader(&server);
    let mut newest = authorities.authorities();
    tokio::select! {
        () = authorities.run() => {}
        changed = newest.changed() => changed.unwrap(),
        () = tokio::time::sleep(Duration::from_hours(1)) => panic!("they are not read"),
    }
    assert_eq!(
        newest.borrow().as_deref(),
        Some(&ClientAuthorities::default())
    );
}
