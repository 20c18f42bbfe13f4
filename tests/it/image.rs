//! The container image: what is in the archive, and that the Dockerfile says the same of it.

mod contained;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::support::{binary::Directory, secure::Ca};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// An archive that scripts/image made.
struct Image {
    archive: PathBuf,
    /// What it printed.
    digest: String,
    /// Where it is unpacked.
    layout: PathBuf,
}

/// What is listed of a blob.
struct Descriptor {
    kind: String,
    content: Vec<u8>,
}

// === impl Image ===

impl Image {
    /// Of the debug build, linked statically, with the authority `ca` instead of this system's.
    async fn debug(directory: &Directory, ca: &Ca) -> Image {
        let command = scripts_image(&["--debug"]);
        Image::make(directory, command, &ca.pem, "image.tar").await
    }

    /// Of something that only looks like a binary: quick, where what counts is what is around it.
    async fn draft(directory: &Directory, authorities: &str, name: &str) -> Image {
        let binary = directory.write("binary", "");
        fs::write(&binary, elf(&[])).unwrap();
        let command = scripts_image(&["--binary", binary.to_str().unwrap()]);
        Image::make(directory, command, authorities, name).await
    }

    async fn make(
        directory: &Directory,
        mut command: Command,
        authorities: &str,
        name: &str,
    ) -> Image {
        let authorities = directory.write("authorities.pem", authorities);
        let archive = directory.write(name, "");
        let layout = archive.with_extension("layout");
        let made = command
            .arg("--authorities")
            .arg(authorities)
            .arg("--output")
            .arg(&archive)
            .output()
            .await
            .unwrap();
        let wrong = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{wrong}");
        let said = String::from_utf8(made.stdout).unwrap();
        let (digest, path) = said.trim().split_once(' ').unwrap();
        assert_eq!(Path::new(path), archive);
        unpack(&archive, &layout);
        Image {
            archive,
            digest: digest.to_owned(),
            layout,
        }
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.layout.join(name)).unwrap()).unwrap()
    }

    /// What a descriptor is for, after its digest and its size were compared with what is there.
    fn follow(&self, descriptor: &Value) -> Descriptor {
        let digest = descriptor["digest"].as_str().unwrap();
        let content = fs::read(self.layout.join("blobs").join(digest.replace(':', "/"))).unwrap();
        assert_eq!(sha256(&content), digest);
        assert_eq!(descriptor["size"], content.len());
        Descriptor {
            kind: descriptor["mediaType"].as_str().unwrap().to_owned(),
            content,
        }
    }

    fn manifest(&self) -> Value {
        let index = self.json("index.json");
        serde_json::from_slice(&self.follow(&index["manifests"][0]).content).unwrap()
    }

    fn config(&self) -> Value {
        serde_json::from_slice(&self.follow(&self.manifest()["config"]).content).unwrap()
    }

    /// Its one layer.
    fn layer(&self) -> Descriptor {
        self.follow(&self.manifest()["layers"][0])
    }

    /// Unpacks it into an empty root of this name, with what a container's runtime adds: the names of hosts, what is mounted, and of the
    /// devices that each has those that random numbers come from. A static binary does not find the C library's function for that.
    fn root(&self, name: &str, config: &str) -> PathBuf {
        let root = self.layout.with_extension(name);
        let layer = self.layout.with_extension("layer");
        fs::write(&layer, self.layer().content).unwrap();
        unpack(&layer, &root);
        fs::create_dir(root.join("dev")).unwrap();
        fs::write(root.join("dev/random"), "").unwrap();
        fs::write(root.join("dev/urandom"), "").unwrap();
        fs::write(root.join("etc/hosts"), "127.0.0.1 receiver.test\n").unwrap();
        fs::write(root.join("etc/resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
        fs::create_dir(root.join("etc/outbox-relay")).unwrap();
        fs::write(root.join("etc/outbox-relay/relay.toml"), config).unwrap();
        root
    }
}

fn scripts_image(arguments: &[&str]) -> Command {
    let mut command = Command::new(format!("{REPOSITORY}/scripts/image"));
    command.args(arguments).kill_on_drop(true);
    command
}

/// The head of a 64-bit ELF file of an x86, with program headers of these kinds.
fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[18] = 62;
    elf[32] = 64;
    elf[54] = 56;
    elf[56] = u8::try_from(kinds.len()).unwrap();
    for kind in kinds {
        elf.extend(kind.to_le_bytes());
        elf.extend([0; 52]);
    }
    elf
}

/// Unpacks an archive into a new directory, with a program that is not ours.
fn unpack(archive: &Path, directory: &Path) {
    fs::create_dir(directory).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.args(["--extract", "--no-same-owner", "--file"])
        .arg(archive);
    assert!(
        tar.arg("--directory")
            .arg(directory)
            .status()
            .unwrap()
            .success()
    );
}

fn sha256(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|value| value.as_str().unwrap()).collect()
}

// === the archive ===

#[tokio::test]
async fn the_archive_is_an_image_of_nothing_but_the_binary_and_is_the_same_each_time() {
    let directory = Directory::new();
    let image = Image::draft(&directory, "authorities", "one.tar").await;
    let again = Image::draft(&directory, "authorities", "two.tar").await;
    assert_eq!(image.digest, again.digest);
    assert!(fs::read(&image.archive).unwrap() == fs::read(&again.archive).unwrap());
    let other = Image::draft(&directory, "others", "three.tar").await;
    assert_ne!(image.digest, other.digest);

    let version = json!({"imageLayoutVersion": "1.0.0"});
    assert_eq!(image.json("oci-layout"), version);
    let index = image.json("index.json");
    assert_eq!(index["schemaVersion"], 2);
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    assert_eq!(index["manifests"][0]["digest"], image.digest.as_str());
    let manifest = image.manifest();
    assert_eq!(manifest["mediaType"], index["manifests"][0]["mediaType"]);
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let layer = image.layer();
    assert_eq!(layer.kind, "application/vnd.oci.image.layer.v1.tar+gzip");
    let mut plain = Vec::new();
    GzDecoder::new(&layer.content[..])
        .read_to_end(&mut plain)
        .unwrap();
    let config = image.config();
    let diff_ids = json!([sha256(&plain)]);
    assert_eq!(
        config["rootfs"],
        json!({"type": "layers", "diff_ids": diff_ids})
    );
    let blobs = fs::read_dir(image.layout.join("blobs/sha256")).unwrap();
    assert_eq!(blobs.count(), 3, "manifest, configuration and layer");
    // What older programs read names the same blobs.
    let docker = &image.json("manifest.json")[0];
    for (path, descriptor) in [
        (&docker["Config"], &manifest["config"]),
        (&docker["Layers"][0], &manifest["layers"][0]),
    ] {
        let digest = descriptor["digest"].as_str().unwrap();
        assert_eq!(path, &format!("blobs/{}", digest.replace(':', "/")));
    }

    let root = directory.write("layer.tar", "");
    fs::write(&root, &plain).unwrap();
    let list = Command::new("tar")
        .args(["--list", "--verbose", "--numeric-owner", "--utc", "--file"])
        .arg(&root)
        .env("TZ", "UTC")
        .output()
        .await
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let entries: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let names: Vec<(&str, &str)> = entries.iter().map(|entry| (entry[0], entry[5])).collect();
    let expected = [
        ("-rw-r--r--", "LICENSE"),
        ("drwxr-xr-x", "etc/"),
        ("drwxr-xr-x", "etc/ssl/"),
        ("drwxr-xr-x", "etc/ssl/certs/"),
        ("-rw-r--r--", "etc/ssl/certs/ca-certificates.crt"),
        ("-rwxr-xr-x", "outbox-relay"),
    ];
    assert_eq!(names, expected);
    for entry in &entries {
        assert_eq!((entry[1], entry[3]), ("0/0", "1970-01-01"), "{entry:?}");
    }
}

/// The Dockerfile can't be tried without Docker; what it says of the image is what the archive has.
#[tokio::test]
async fn the_dockerfile_says_the_same_of_the_image() {
    let directory = Directory::new();
    let image = Image::draft(&directory, "authorities", "image.tar").await;
    let config = &image.config()["config"];
    let dockerfile = fs::read_to_string(format!("{REPOSITORY}/Dockerfile")).unwrap();
    let (build, last) = dockerfile.split_once("\nFROM scratch\n").unwrap();
    let last: Vec<&str> = last.lines().filter(|line| !line.is_empty()).collect();

    let mut expected = Vec::new();
    for (name, value) in config["Labels"].as_object().unwrap() {
        expected.push(format!("LABEL {name}={value}"));
    }
    for variable in strings(&config["Env"]) {
        expected.push(format!("ENV {variable}"));
    }
    for port in config["ExposedPorts"].as_object().unwrap().keys() {
        expected.push(format!("EXPOSE {port}"));
    }
    expected.push(format!("USER {}", config["User"].as_str().unwrap()));
    expected.push(format!("ENTRYPOINT {}", config["Entrypoint"]));
    let (copies, said): (Vec<&str>, Vec<&str>) =
        last.iter().partition(|line| line.starts_with("COPY "));
    let mut said: Vec<String> = said.into_iter().map(str::to_owned).collect();
    said.sort();
    expected.sort();
    assert_eq!(said, expected);

    let mut copied: Vec<&str> = copies
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    copied.sort_unstable();
    let all = [
        "/LICENSE",
        "/etc/ssl/certs/ca-certificates.crt",
        "/outbox-relay",
    ];
    assert_eq!(copied, all);
    // The compiler is the one that the crate asks for, and what it is told is what scripts/image tells it.
    let rust = env!("CARGO_PKG_RUST_VERSION");
    assert!(build.contains(&format!("FROM rust:{rust}-")), "{build}");
    assert!(build.contains("-C target-feature=+crt-static"), "{build}");
    let labels = &config["Labels"];
    let version = &labels["org.opencontainers.image.version"];
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn a_binary_that_would_not_start_in_an_empty_root_is_refused() {
    let directory = Directory::new();
    let archive = directory.write("image.tar", "as it was");
    let of_nothing = directory.write("of-nothing", "");
    let mut strange = elf(&[]);
    strange[18] = 8;
    fs::write(&of_nothing, strange).unwrap();
    for (binary, reason) in [
        (env!("CARGO_BIN_EXE_outbox-relay"), "is not static"),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"),
            "none of 64-bit Linux",
        ),
        (of_nothing.to_str().unwrap(), "machine 8 of ELF"),
    ] {
        let mut command = scripts_image(&["--binary", binary, "--output"]);
        let made = command.arg(&archive).output().await.unwrap();
        let error = String::from_utf8_lossy(&made.stderr);
        assert!(!made.status.success() && error.contains(reason), "{error}");
    }
    assert_eq!(fs::read_to_string(&archive).unwrap(), "as it was");
}
