//! The architecture, as far as the sources show it: imports point down only, and every file can be read in one sitting.
use std::{
    fs,
    path::{Path, PathBuf},
};

/// From the words up. A module imports from the rows above its own only, so that neighbours don't know each other.
const LAYERS: &[&[&str]] = &[
    &["saga"],
    &["message"],
    &["retry", "limit", "trace", "schedule"],
    &["route"],
    &["store", "delivery", "metrics"],
    &["relay", "maintenance"],
    &["admin"],
    &["config"],
    &["app"],
    &["cli"],
    &["main"],
];

/// Real parts to try things with: the demo's and the tests'. It knows nobody.
const LAB: &str = "lab";

/// What a module must not name, for it belongs to another one or to none.
const FOREIGN: &[(&[&str], &[&str])] = &[
    (
        &[
            "saga", "message", "route", "retry", "limit", "trace", "schedule",
        ],
        &[
            "tokio",
            "reqwest",
            "hyper",
            "tokio_postgres",
            "deadpool",
            "tracing",
            "rand::rng",
            "Instant",
            "SystemTime",
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
        ],
    ),
    (&["store"], &["reqwest", "hyper"]),
    (
        &["metrics"],
        &["tokio", "reqwest", "hyper", "tokio_postgres"],
    ),
    (
        &["delivery", "relay", "maintenance", "config", "app"],
        &["tokio_postgres", "deadpool"],
    ),
    (&["relay", "maintenance", "app"], &["reqwest", "hyper"]),
];

struct Source {
    path: PathBuf,
    /// `relay`, `session`, `end` for `src/relay/session/end.rs`.
    modules: Vec<String>,
    /// Without its tests and comments.
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a directory with this extension.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // What fuzzing builds by hand lies below its own directory.
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|has| has == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut sources = Vec::new();
    for path in files(&src, "rs") {
        let below = path.strip_prefix(&src).unwrap().with_extension("");
        let modules: Vec<String> = below
            .iter()
            .map(|part| part.to_str().unwrap().to_owned())
            .collect();
        if modules == ["lib"] || modules.iter().any(|module| module == "tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let text = lines.collect::<Vec<_>>().join("\n");
        sources.push(Source {
            path,
            modules,
            text,
        });
    }
    sources
}

/// The top modules of the crate that a text names: of `crate::a::b` and `crate::{a, b::{c, d}}` both.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for root in ["crate::", "outbox_relay::"] {
        for (start, _) in text.match_indices(root) {
            let before = text[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &text[start + root.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                let (mut depth, mut item) = (1, String::new());
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => found.push(std::mem::take(&mut item)),
                        c if depth == 1 => item.push(c),
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
                found.push(item);
            } else {
                found.push(rest.into());
            }
        }
    }
    let name = |path: &String| {
        let path = path.trim_start();
        let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
        path[..end.unwrap_or(path.len())].to_owned()
    };
    let mut names: Vec<String> = found
        .iter()
        .map(name)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn layer(module: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&module));
    found.unwrap_or_else(|| {
        panic!("{module} has no layer yet: put it into LAYERS, as the design says")
    })
}

/// Whether `word` stands in `text` as a whole word.
fn names(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn imports_are_found_in_all_their_forms() {
    let text = "use crate::{\n    a::{self, b::{c, d}},\n    e,\n};\nuse crate::f::g; fn x(y: crate::h) {} mycrate::no();";
    assert_eq!(imports(text), ["a", "e", "f", "h"]);
    assert!(names("tokio::time", "tokio") && !names("tokio_util::x", "tokio"));
}

#[test]
fn imports_point_down_only() {
    let mut wrong = Vec::new();
    let sources = sources();
    assert!(sources.len() > 20, "the sources are not where they were");
    for source in &sources {
        let module = source.modules[0].as_str();
        for import in imports(&source.text) {
            let right = match (module, import.as_str()) {
                (same, import) if same == import => true,
                (LAB, _) => false,
                ("cli", LAB) => source.modules.get(1).is_some_and(|module| module == "demo"),
                (_, LAB) => false,
                // What is said at the crate's root, `outbox_relay::cli` for `main`, is a module as well.
                (module, import) => layer(import) < layer(module),
            };
            if !right {
                wrong.push(format!("{} imports {import}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn nobody_reaches_the_root_by_way_of_super() {
    for source in sources() {
        let up = "super::".repeat(source.modules.len());
        assert!(
            !source.text.contains(&up),
            "{}: {up} is the crate's root: say crate::",
            source.path.display()
        );
    }
}

#[test]
fn each_library_is_named_where_it_belongs() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (modules, words) in FOREIGN {
            let ours = modules.contains(&source.modules[0].as_str());
            for word in words.iter().filter(|_| ours) {
                // A URL is a value, not a connection.
                let text = source.text.replace("reqwest::Url", "");
                if names(&text, word) {
                    wrong.push(format!("{} names {word}", source.path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_file_is_longer_than_five_hundred_lines() {
    let mut long = Vec::new();
    for (directory, extension) in [
        ("src", "rs"),
        ("tests", "rs"),
        ("sql", "sql"),
        ("src", "js"),
        ("src", "css"),
        ("tests", "mjs"),
    ] {
        for path in files(&root().join(directory), extension) {
            // What others wrote is kept as it came.
            if path.components().any(|part| part.as_os_str() == "vendor") {
                continue;
            }
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            if lines > 500 {
                long.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// What stands in the database is text to the page, whatever it looks like.
#[test]
fn the_page_makes_no_markup_of_what_it_is_told() {
    let page = files(&root().join("src/admin/page"), "js");
    assert!(page.len() > 10, "the page is not where it was");
    for path in page
        .iter()
        .filter(|path| !path.iter().any(|part| part == "vendor"))
    {
        let text = fs::read_to_string(path).unwrap();
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
        ] {
            assert!(!text.contains(way), "{}: {way}", path.display());
        }
        for elsewhere in ["http:", "https:", "//cdn"] {
            assert!(!text.contains(elsewhere), "{}: {elsewhere}", path.display());
        }
    }
}

/// The pages that say which test shows what are read by those who want to trust this: each name in them must be there.
#[test]
fn every_test_that_a_page_names_exists() {
    let mut code = String::new();
    for path in [
        files(&root().join("src"), "rs"),
        files(&root().join("tests"), "rs"),
    ]
    .concat()
    {
        code.push_str(&fs::read_to_string(&path).unwrap());
        // A file is a module, too.
        code.push_str(&format!(
            "\nmod {};\n",
            path.file_stem().unwrap().to_str().unwrap()
        ));
    }
    for page in ["tests/field-cases.md", "tests/threat-model.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert!(
            !text.contains("not built yet"),
            "{page}: what is built has a test, or is MISSING one"
        );
        let named: Vec<&str> = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| {
                name.contains("::")
                    && !name.ends_with("::")
                    && !name.contains(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c))
            })
            .collect();
        assert!(named.len() > 30, "{page}: {}", named.len());
        for name in named {
            let last = name.rsplit("::").next().unwrap();
            let there = ["fn", "mod"].iter().any(|kind| {
                let start = format!("{kind} {last}");
                code.match_indices(&start)
                    .any(|(at, _)| code[at + start.len()..].starts_with(['(', ';', ' ', '<']))
            });
            assert!(there, "{page}: there is no {name}");
        }
    }
}
