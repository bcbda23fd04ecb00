//! The configuration file on the command line: `validate`, and the precedence of its values in a process.

use std::{path::Path, process::Command};

use foretide::{cli::Exit, config::ConfigFile};

use super::{run, written};

const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

#[test]
fn every_example_of_the_page_is_a_valid_configuration() {
    let blocks = DOCUMENT.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let all: Vec<_> = blocks
        .filter(|block| block.contains("ControllerConfig"))
        .collect();
    assert_eq!(all.len(), 3);
    for text in all {
        let file = ConfigFile::parse(Path::new("config.yaml"), text).unwrap();
        assert!(file.config().is_ok(), "{:?}", file.config());
    }
}

#[test]
fn validate_checks_a_configuration_file() {
    let head = "apiVersion: foretide.io/v1alpha1\nkind: ControllerConfig\n";
    let checked = |name: &str, text: &str| {
        let path = written(name, format!("{head}{text}"));
        let output = run(&format!("validate -f {path}")).unwrap();
        (
            output.exit,
            output.text.replace(path.trim_end_matches(name), ""),
        )
    };
    let valid = checked("valid.yaml", "syncPeriod: 30s\n");
    let summary = "1 configuration valid, 0 errors, 0 warnings\n".to_owned();
    assert_eq!(valid, (Exit::Ok, summary));

    let (exit, text) = checked("typo.yaml", "syncInterval: 30s\n");
    assert_eq!(exit, Exit::Invalid);
    let quoted = DOCUMENT
        .lines()
        .find(|line| line.contains("syncInterval"))
        .unwrap();
    let line = text.lines().next().unwrap();
    assert_eq!(line, quoted.replace("config.yaml", "typo.yaml"));

    let http = "prometheus:\n  url: http://p\n  bearerTokenFile: absent\n";
    let (exit, text) = checked("http.yaml", http);
    assert_eq!(exit, Exit::Invalid);
    let unencrypted = "http.yaml:4: error: prometheus.url: the URL is not encrypted";
    assert!(text.contains(unencrypted), "{text}");
    let absent = "warning: absent does not exist here";
    assert!(text.contains(absent), "{text}");
    let keyless = "prometheus:\n  url: https://p\n  tls: {keyFile: k}\n";
    let (_, text) = checked("field.yaml", keyless);
    let expected = "field.yaml:5: error: prometheus.tls: expected certFile";
    assert!(text.contains(expected), "{text}");
}

/// The output of the controller, which exits at once, because the port that it should listen on is not an address of
/// this machine, or earlier.
fn said(file: &str, flags: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
    command
        .arg("controller")
        .arg("--config")
        .arg(file)
        .args(flags);
    command.env_clear().envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file() {
    let text = "apiVersion: foretide.io/v1alpha1\nkind: ControllerConfig\nlisten: 203.0.113.1:1\n";
    let file = written("listen.yaml", text);
    let environment = [("FORETIDE_LISTEN", "203.0.113.2:1")];
    assert!(said(&file, &[], &[]).contains("cannot listen on 203.0.113.1:1"));
    assert!(said(&file, &[], &environment).contains("cannot listen on 203.0.113.2:1"));
    let flags = ["--listen=203.0.113.3:1"];
    assert!(said(&file, &flags, &environment).contains("cannot listen on 203.0.113.3:1"));
    let said = said(&file.replace("listen.yaml", "absent.yaml"), &[], &[]);
    assert!(
        said.contains("cannot read the configuration file"),
        "{said}"
    );
    assert!(said.contains("absent.yaml: No such file"), "{said}");
}
