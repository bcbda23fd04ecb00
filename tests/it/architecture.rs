//! Rules about dependencies that Cargo and Clippy cannot state: names that must not occur in some folders.
//!
//! The test reads text, not types, without comments. What one crate may use of another stands in its manifest.

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
    /// Text that may not occur.
    text: &'static [&'static str],
    reason: &'static str,
}

/// Time, tasks and the process: what the standard library offers to a crate whose manifest names no other way to them.
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
            "crates/base/src/leadership/elector.rs",
            "chart/src",
            "crates/page/src",
            "crates/backtest/src",
        ],
        except: &["crates/page/src/http"],
        text: EFFECTS,
        reason: "decisions, forecasts, elections, back-tests, views and charts are pure: values in, values out, and `now` is an argument",
    },
    Rule {
        places: &["domain/src"],
        except: &["domain/src/sim", "domain/src/lib.rs"],
        text: &["sim::"],
        reason: "the simulation uses decisions, and not the other way round",
    },
    Rule {
        places: &["crds/src", "crates/api/src"],
        except: &[],
        text: &["kube::Client", "kube::Api", "kube::client", "tokio::"],
        reason: "wire types and ports contain no client",
    },
    Rule {
        places: &["crates/api/src"],
        except: &["crates/api/src/ports"],
        text: &["ports::", "async fn", ".await", "std::env", "tracing::"],
        reason: "the conversion of a spec to domain types is pure",
    },
    Rule {
        places: &["crates/kube/src"],
        except: &[
            "crates/kube/src/api_server/client.rs",
            "crates/kube/src/api_server/client",
            "crates/kube/src/api_server/response.rs",
            "crates/kube/src/cluster/watch.rs",
            // A port-forward, over which pages are read.
            "crates/kube/src/remote_page/pods.rs",
        ],
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
        places: &["crates/kube/src"],
        except: &[
            "crates/kube/src/api_server",
            // The lease itself.
            "crates/kube/src/cluster/lease.rs",
            // What every replica writes, whether it leads or not.
            "crates/kube/src/cluster/access.rs",
            "crates/kube/src/cluster/api_services.rs",
            "crates/kube/src/cluster/shared_secret.rs",
            // What only reads.
            "crates/kube/src/cluster/pod_list.rs",
            "crates/kube/src/members/inventory.rs",
            "crates/kube/src/remote_page/pods.rs",
            "crates/kube/src/upstream.rs",
            // What a person writes, with `foretide members`.
            "crates/kube/src/members/admin.rs",
            // What a person asks for, with `foretide ui`.
            "crates/kube/src/remote_page/account.rs",
            "crates/kube/src/members/registry.rs",
            "crates/kube/src/cluster/tests",
        ],
        text: &["WriteGate::default", "connection.calls"],
        reason: "a write about an autoscaler has the gate of the election",
    },
    Rule {
        places: &["src"],
        except: &[
            "src/app",
            "src/app.rs",
            // Flags that every process has.
            "src/config",
            "src/cli/cluster.rs",
            "src/cli/explain/live.rs",
            "src/cli/members",
            "src/cli/ui.rs",
            // The JSON of Prometheus in files.
            "src/cli/recording.rs",
        ],
        text: &["foretide_kube::", "foretide_prometheus::"],
        reason: "only app names concrete adapters (and the commands that connect to clusters themselves)",
    },
    Rule {
        places: &["crates/backtest/src"],
        except: &[],
        text: &[
            "kube::Client",
            "kube::Api",
            "foretide_base::machine",
            "foretide_base::clock",
            "foretide_base::http",
        ],
        reason: "answers without a cluster use only the words of errors of `foretide-base`, and types of kube",
    },
    Rule {
        places: &["crates/base/src/leadership/elector.rs"],
        except: &[],
        text: &["tokio::", "futures::", "tracing::", "telemetry::"],
        reason: "who leads is decided by values, so that random schedules can test it",
    },
    Rule {
        places: &["src", "crates"],
        except: &[
            "src/config/file.rs",
            "src/cli/context.rs",
            "crates/kube/src/access.rs",
            "crates/api/tests",
            "crates/federate/tests",
            "crates/page/src/remedy.rs",
            "crates/servers/build.rs",
            "crates/servers/tests",
        ],
        text: &["std::env::"],
        reason: "only the configuration and the context of a command read the environment",
    },
];

/// What differs from run to run; tests may use it.
const CHANCE: Rule = Rule {
    places: &["src", "crates"],
    except: &[
        "crates/base/src/clock.rs",
        "crates/base/src/machine.rs",
        // A connection over the client of a test server.
        "crates/kube/src/api_server/client.rs",
        // Where the machine is made.
        "src/main.rs",
        "crates/servers/src/main.rs",
        // Pages are for people.
        "src/cli/web/lab.rs",
        "crates/page/src/http/routes.rs",
    ],
    text: &[
        "Clock::system",
        "Machine::system",
        "RandomState",
        "spawn_blocking",
        "thread::spawn",
    ],
    reason: "time, chance and threads come from the `Machine` that is passed, so that a simulation repeats",
};

/// What differs even there: which branch of a `select!` is polled first.
const ORDER: Rule = Rule {
    places: &["src", "crates"],
    except: &[],
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
        texts.collect()
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
fn now() -> Timestamp { jiff::Timestamp::now() }
const URL: &str = \"http://tokio::\"; // kube::
use my_kube::Thing;
use kube::Client;
";
    let rule = Rule {
        places: &[],
        except: &[],
        text: &["kube::", "tokio::", "::now()"],
        reason: "",
    };
    let found = rule.violations(planted);
    let found: Vec<_> = found.iter().map(|one| (one.line, &*one.name)).collect();
    assert_eq!(found, [(2, "::now()"), (3, "tokio::"), (5, "kube::")]);
}
