//! What a release consists of: all of it is there, belongs together, and says what it is made of.

use std::{fs, path::Path, process::Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::support::{binary::Directory, told};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a command that must succeed, and returns what it printed.
async fn run(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The crates that cargo links, as `name@version`; the relay is the first.
async fn linked() -> Vec<String> {
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "--prefix", "none", "--no-dedupe"])
        .args(["--edges", "normal,no-proc-macro", "--format", "{p}"])
        .current_dir(REPOSITORY);
    let tree = run(&mut tree).await;
    let mut crates: Vec<String> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        let one = format!("{name}@{}", version.trim_start_matches('v'));
        if !crates.contains(&one) {
            crates.push(one);
        }
    }
    crates
}

/// With the debug build: what a release has besides is ten minutes of optimisation.
#[tokio::test]
async fn a_release_is_complete_and_says_what_it_is_made_of() {
    let directory = Directory::new();
    let path = directory.write("here", "").with_file_name("release");
    let mut script = Command::new(format!("{REPOSITORY}/scripts/release"));
    let said = run(script.arg("--debug").arg(&path)).await;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("outbox-relay-{version}");
    let mut names: Vec<String> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let image = names.iter().find(|name| name.ends_with(".oci.tar"));
    let binary = image.unwrap().strip_suffix(".oci.tar").unwrap().to_owned();
    let mut expected = vec![
        "SHA256SUMS".to_owned(),
        format!("{name}-NOTICES.txt"),
        format!("{name}.cdx.json"),
        format!("{name}.tgz"),
        format!("{binary}.oci.tar"),
        binary.clone(),
    ];
    expected.sort();
    assert_eq!(names, expected);

    let sums = fs::read_to_string(path.join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), names.len() - 1);
    let mut check = Command::new("sha256sum");
    run(check
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&path))
    .await;

    let told_version = run(Command::new(path.join(&binary)).arg("--version")).await;
    assert_eq!(told_version, format!("outbox-relay {version}\n"));
    let mut index = Command::new("tar");
    index
        .args(["--extract", "--to-stdout", "--file"])
        .arg(path.join(format!("{binary}.oci.tar")))
        .arg("index.json");
    let index: Value = serde_json::from_str(&run(&mut index).await).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    assert!(said.ends_with(&format!("image {digest}\n")), "{said}");

    // The chart as it is packed renders what it does in place, and asks for the image of this version.
    let render = async |chart: &Path| {
        let mut helm = Command::new(told("OUTBOX_TEST_HELM"));
        helm.args(["template", "shop"]).arg(chart);
        run(helm.args(["--set", "database.existingSecret=db"])).await
    };
    let packed = render(&path.join(format!("{name}.tgz"))).await;
    let in_place = render(&Path::new(REPOSITORY).join("helm/outbox-relay")).await;
    assert_eq!(packed, in_place);
    assert!(packed.contains(&format!("image: \"outbox-relay:{version}\"")));

    let materials = path.join(format!("{name}.cdx.json"));
    judge(&materials).await;
    let text = fs::read_to_string(&materials).unwrap();
    let materials: Value = serde_json::from_str(&text).unwrap();
    let hash = &materials["metadata"]["component"]["hashes"][0]["content"];
    let line = format!("{}  {binary}", hash.as_str().unwrap());
    assert!(sums.lines().any(|sum| sum == line), "{line}");
    let mut crates = linked().await;
    assert_eq!(crates.remove(0), format!("outbox-relay@{version}"));
    let listed = materials["components"].as_array().unwrap().iter();
    let purls = listed.map(|one| one["purl"].as_str().unwrap());
    let (mut of_cargo, others): (Vec<&str>, Vec<&str>) =
        purls.partition(|purl| purl.starts_with("pkg:cargo/"));
    crates.sort();
    of_cargo.sort_unstable();
    let purls: Vec<String> = crates
        .iter()
        .map(|one| format!("pkg:cargo/{one}"))
        .collect();
    assert_eq!(of_cargo, purls);
    for name in ["rust-std", "glibc", "libgcc", "uplot"] {
        let part = format!("/{name}@");
        assert!(others.iter().any(|purl| purl.contains(&part)), "{name}");
    }
    // Each of them with its terms.
    let notices = fs::read_to_string(path.join(format!("{name}-NOTICES.txt"))).unwrap();
    for one in &crates {
        let one = one.replace('@', " ");
        assert!(
            notices.contains(&format!("\n{one} (")) || notices.contains(&format!("\n{one}: ")),
            "{one}"
        );
    }
}

/// By the schema of `CycloneDX`, in a library of its makers; and that no reference leads nowhere.
async fn judge(materials: &Path) {
    const JUDGE: &str = "
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
assert not wrong, wrong
bom = json.loads(text)
refs = [bom['metadata']['component']['bom-ref']] + [one['bom-ref'] for one in bom['components']]
assert len(refs) == len(set(refs))
assert sorted(one['ref'] for one in bom['dependencies']) == sorted(refs)
assert all(ref in refs for one in bom['dependencies'] for ref in one.get('dependsOn', []))
";
    let mut python = Command::new(told("OUTBOX_TEST_PYTHON"));
    run(python.args(["-c", JUDGE]).arg(materials)).await;
}
