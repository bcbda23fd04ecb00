//! The dependency rule, checked on the sources: the modules that each module may name, and texts that pure modules must
//! not use.
//!
//! Compilers and lints see one line at a time; this test reads whole folders. It reads text, not types: it strips line
//! comments and splits grouped imports. `Cargo.toml` and `clippy.toml` cover the rest.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// One rule: files in these places must not contain these names.
struct Rule {
    /// Folders or files, relative to the repository.
    places: &'static [&'static str],
    /// Files inside them that the rule does not hold for.
    except: &'static [&'static str],
    /// Modules of the service that may not be named through `crate::`.
    modules: &'static [&'static str],
    /// Text that may not occur.
    text: &'static [&'static str],
    reason: &'static str,
}

/// Time, tasks and the process: parts of the standard library, which a crate can use without a dependency.
const EFFECTS: &[&str] = &[
    "async fn",
    ".await",
    "::now()",
    "SystemTime",
    "Instant",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
];

const RULES: &[Rule] = &[
    Rule {
        places: &[
            "domain/src",
            "crates/federate/src",
            "models/src",
            "src/leadership/elector.rs",
            "chart/src",
        ],
        except: &[],
        modules: &[],
        text: EFFECTS,
        reason: "decisions, forecasts, elections and charts are pure: values in, values out, and `now` is an argument",
    },
    Rule {
        places: &["domain/src"],
        except: &["domain/src/sim"],
        modules: &["sim"],
        text: &[],
        reason: "the simulation uses decisions, and not the other way round",
    },
    Rule {
        places: &[
            "src",
            "crates",
            "domain/src",
            "models/src",
            "crds/src",
            "chart/src",
        ],
        except: &[],
        modules: &[],
        text: &["foretide_replay"],
        reason: "the benchmark is not part of the product",
    },
    Rule {
        places: &["crds/src"],
        except: &[],
        modules: &[],
        text: &["kube::Client", "kube::Api", "kube::client"],
        reason: "wire types contain no client and no decisions",
    },
    Rule {
        places: &["crates/api/src/ports"],
        except: &[],
        modules: &[],
        text: &["kube::", "reqwest::", "tokio::"],
        reason: "ports speak the terms of the domain, not of an adapter",
    },
    Rule {
        places: &["src/adapters"],
        except: &[],
        modules: &["app", "controller", "cli", "config", "forecaster", "http"],
        text: &[],
        reason: "adapters do not depend on their callers",
    },
    Rule {
        places: &["src/adapters"],
        except: &[
            "src/adapters/api_server/client.rs",
            "src/adapters/api_server/response.rs",
            "src/adapters/kube/watch.rs",
            // A port-forward, over which pages are read.
            "src/adapters/remote_page/pods.rs",
        ],
        modules: &[],
        text: &[
            "response::text",
            "response::events",
            "headers_and_text",
            "kube::Api",
            "Api::",
        ],
        reason: "only `Calls` sends requests to an API server, and each of its writes asks the gate; watches only read",
    },
    Rule {
        places: &["src/adapters"],
        except: &[
            "src/adapters/api_server",
            // The lease itself.
            "src/adapters/kube/lease.rs",
            // Writes of every replica, independently of leadership.
            "src/adapters/certificates/secret.rs",
            "src/adapters/kube/access.rs",
            "src/adapters/kube/api_services.rs",
            // Reads only.
            "src/adapters/kube/pod_list.rs",
            "src/adapters/members/inventory.rs",
            "src/adapters/remote_page/pods.rs",
            "src/adapters/upstream.rs",
            // Writes of a person, by `foretide members`.
            "src/adapters/members/admin.rs",
            // Requests of a person, by `foretide ui`.
            "src/adapters/remote_page/account.rs",
            "src/adapters/members/registry.rs",
            "src/adapters/kube/tests",
            "src/adapters/certificates/tests.rs",
        ],
        modules: &[],
        text: &["WriteGate::default", "connection.calls"],
        reason: "a write about an autoscaler has the gate of the election",
    },
    Rule {
        places: &["src"],
        except: &[
            "src/adapters",
            "src/app",
            "src/app.rs",
            "src/cli/cluster.rs",
            "src/cli/explain/live.rs",
            "src/cli/members",
            "src/cli/ui.rs",
            // The JSON of Prometheus in files.
            "src/cli/recording/prometheus.rs",
        ],
        modules: &["adapters"],
        text: &["kube::Client", "kube::Api", "kube::client"],
        reason: "only app names concrete adapters (and the commands that connect to clusters themselves)",
    },
    Rule {
        places: &["src/leadership"],
        except: &[],
        modules: &[
            "adapters",
            "app",
            "cli",
            "config",
            "controller",
            "forecaster",
            "http",
        ],
        text: &[
            "kube::",
            "k8s_openapi::",
            "foretide_api::validation",
            "foretide_api::status",
        ],
        reason: "an election knows its lease and a clock, not what the leader does",
    },
    Rule {
        places: &["src/leadership/elector.rs"],
        except: &[],
        modules: &["telemetry"],
        text: &["tokio::", "futures::", "tracing::"],
        reason: "who leads is decided by values, so that random schedules can test it",
    },
    Rule {
        places: &["src/http"],
        except: &[],
        modules: &["adapters", "app", "controller", "cli", "forecaster"],
        text: &["kube::"],
        reason: "pages and probes render the state passed to them, and ask a port who may read them",
    },
    Rule {
        places: &["src/page"],
        except: &[],
        modules: &[
            "adapters",
            "app",
            "clock",
            "controller",
            "cli",
            "config",
            "forecaster",
            "http",
            "telemetry",
        ],
        text: EFFECTS,
        reason: "what the page shows is computed from what was recorded, and from the state of the process as a trait",
    },
    Rule {
        places: &["src/page"],
        except: &[],
        modules: &[],
        text: &["foretide_api::ports"],
        reason: "what the page shows is computed from what was recorded",
    },
    Rule {
        places: &["crates/api/src"],
        except: &["crates/api/src/ports"],
        modules: &["ports"],
        text: &[
            "kube::Client",
            "kube::Api",
            "async fn",
            ".await",
            "std::env",
            "tracing::",
        ],
        reason: "the conversion of a spec to domain types is pure",
    },
    Rule {
        places: &["src"],
        except: &["src/config/file.rs", "src/cli/context.rs"],
        modules: &[],
        text: &["std::env::"],
        reason: "only the configuration and the context of a command read the environment",
    },
];

/// Sources of differences from run to run; tests may use them.
const CHANCE: Rule = Rule {
    places: &["src"],
    except: &[
        "src/clock.rs",
        "src/machine.rs",
        // The one place where the machine is made.
        "src/main.rs",
        // Pages are for people.
        "src/cli/web/lab.rs",
        "src/http/page/routes.rs",
    ],
    modules: &[],
    text: &[
        "Clock::system",
        "Machine::system",
        "RandomState",
        "spawn_blocking",
        "thread::spawn",
    ],
    reason: "time, chance and threads come from the `Machine` that is passed, so that a simulation repeats",
};

/// The order in which the branches of a `select!` are polled, which differs even in a simulation.
const ORDER: Rule = Rule {
    places: &["src"],
    except: &[],
    modules: &[],
    text: &[UNBIASED],
    reason: "the branches of a `select!` are polled in the order in which they are written",
};

const UNBIASED: &str = "select! without biased";

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    line: usize,
    name: String,
}

// === impl Rule ===

impl Rule {
    fn violations(&self, source: &str) -> Vec<Violation> {
        let code: Vec<&str> = source.lines().map(without_comment).collect();
        let texts = code.iter().zip(1..).flat_map(|(text, line)| {
            let found = self.text.iter().filter(|name| contains_word(text, name));
            found.map(move |name| Violation {
                line,
                name: (*name).to_owned(),
            })
        });
        let modules = modules_named(&code.join("\n"));
        let modules = modules
            .into_iter()
            .filter(|found| self.modules.contains(&&*found.name));
        let mut all: Vec<_> = texts.chain(modules).collect();
        all.sort_by_key(|violation| violation.line);
        all
    }

    fn files(&self) -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for place in self.places {
            rust_files(&root.join(place), &mut files);
        }
        files.retain(|file| {
            !self
                .except
                .iter()
                .any(|except| file.starts_with(root.join(except)))
        });
        files.sort();
        files
    }
}

/// The same lines without comments and items for tests. A `select!` whose first line is not `biased;` is marked.
fn product_code(source: &str) -> String {
    let mut code = String::new();
    let mut test: Option<String> = None;
    let mut lines = source.lines().map(without_comment).peekable();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        match &test {
            Some(of) => {
                let ends = indent == of && (line.ends_with('}') || line.ends_with(';'));
                test = test.filter(|_| !ends);
            }
            None if line.trim() == "#[cfg(test)]" => test = Some(indent.to_owned()),
            None => code.push_str(line),
        }
        let is_select = test.is_none() && line.contains("select! {");
        let first = lines.peek().map_or("", |next| next.trim());
        if is_select && !line.contains("biased;") && first != "biased;" {
            code.push(' ');
            code.push_str(UNBIASED);
        }
        code.push('\n');
    }
    code
}

/// A line up to its comment; the slashes of a URL do not start one.
pub(crate) fn without_comment(line: &str) -> &str {
    let starts = line.match_indices("//").map(|(at, _)| at);
    let comment = starts.into_iter().find(|at| !line[..*at].ends_with(':'));
    comment.map_or(line, |at| &line[..at])
}

/// Returns whether `name` occurs in `text` as a whole word.
fn contains_word(text: &str, name: &str) -> bool {
    let begins = |at: usize| !name.starts_with(is_word) || !text[..at].ends_with(is_word);
    let ends =
        |at: usize| !name.ends_with(is_word) || !text[at + name.len()..].starts_with(is_word);
    text.match_indices(name)
        .any(|(at, _)| begins(at) && ends(at))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every module named as `crate::module`, alone or in a group such as `crate::{one::Thing, two}`.
fn modules_named(code: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        let mut depth = 0;
        let mut fresh = true;
        for (offset, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => fresh = true,
                c if is_word(c) && fresh && depth <= 1 => {
                    let word: String = rest[offset..].chars().take_while(|c| is_word(*c)).collect();
                    let line = 1 + code[..at + path.len() + offset].matches('\n').count();
                    found.push(Violation { line, name: word });
                    fresh = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

pub(crate) fn rust_files(place: &Path, into: &mut Vec<PathBuf>) {
    if place.is_file() {
        into.push(place.to_owned());
        return;
    }
    let entries =
        fs::read_dir(place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn no_source_file_breaks_the_dependency_rule() {
    let mut report = Vec::new();
    for rule in RULES {
        let files = rule.files();
        assert!(!files.is_empty(), "no files in {:?}", rule.places);
        for file in files {
            let source = fs::read_to_string(&file).expect("a readable source");
            for Violation { line, name } in rule.violations(&source) {
                report.push(format!(
                    "{}:{line}: {name} ({})",
                    file.display(),
                    rule.reason
                ));
            }
        }
    }
    assert!(
        report.is_empty(),
        "the dependency rule is broken:\n{}",
        report.join("\n")
    );
}

#[test]
fn time_and_chance_come_from_the_machine() {
    let is_test = |file: &PathBuf| {
        let mut parts = file
            .components()
            .map(|part| part.as_os_str().to_string_lossy());
        parts.any(|part| ["tests", "tests.rs", "fake.rs", "laws.rs"].contains(&&*part))
    };
    let mut report = Vec::new();
    for rule in [CHANCE, ORDER] {
        for file in rule.files().iter().filter(|file| !is_test(file)) {
            let source = fs::read_to_string(file).expect("a readable source");
            for Violation { line, name } in rule.violations(&product_code(&source)) {
                report.push(format!(
                    "{}:{line}: {name} ({})",
                    file.display(),
                    rule.reason
                ));
            }
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn planted_chance_is_found_outside_of_tests() {
    let planted = "\
async fn run() {
    tokio::select! {
        biased;
        () = one => {}
    }
    tokio::select! {
        () = two => Clock::system(),
    }
    let order = RandomState::new(); // RandomState
}
#[cfg(test)]
mod tests {
    fn now() { Clock::system() }
}
#[cfg(test)]
mod laws;
fn after() { spawn_blocking(work) }
";
    let found = [ORDER, CHANCE].map(|rule| rule.violations(&product_code(planted)));
    let found = found.iter().flatten();
    let found: Vec<_> = found.map(|one| (one.line, &*one.name)).collect();
    let want = [
        (6, UNBIASED),
        (7, "Clock::system"),
        (9, "RandomState"),
        (17, "spawn_blocking"),
    ];
    assert_eq!(found, want);
}

#[test]
fn the_check_covers_every_pure_file() {
    let files: Vec<_> = RULES.iter().take(1).flat_map(Rule::files).collect();
    for part in [
        "domain/src/autoscale/mod.rs",
        "domain/src/hpa/calculator.rs",
        "models/src/dsp.rs",
        "domain/src/sim/mod.rs",
    ] {
        assert!(
            files.iter().any(|file| file.ends_with(part)),
            "{part} is not among {files:?}"
        );
    }
}

#[test]
fn planted_violations_are_found_at_their_lines() {
    let planted = "\
//! Says kube:: and tokio::sleep in a comment.
use crate::{
    clock::Clock, // why
    config::{Config, adapters},
    telemetry,
};
use crate::adapters::kube::Connection;
fn now() -> Timestamp { jiff::Timestamp::now() }
const URL: &str = \"http://tokio::\"; // kube::
use my_kube::Thing;
";
    let rule = Rule {
        places: &[],
        except: &[],
        modules: &["adapters", "clock", "telemetry"],
        text: &["kube::", "tokio::", "::now()"],
        reason: "",
    };
    let found = rule.violations(planted);
    let found: Vec<_> = found
        .iter()
        .map(|violation| (violation.line, &*violation.name))
        .collect();
    assert_eq!(
        found,
        [
            (3, "clock"),
            (5, "telemetry"),
            (7, "kube::"),
            (7, "adapters"),
            (8, "::now()"),
            (9, "tokio::")
        ]
    );
}
