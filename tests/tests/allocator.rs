//! The program allocates with the system's allocator. Others are built for one size of memory page, and end a program
//! at its start on a machine with larger ones, as many with aarch64 have.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use tokscope_tests::checkout;

/// Names of allocators, as they are in those of packages.
const ALLOCATORS: [&str; 5] = ["jemalloc", "mimalloc", "snmalloc", "rpmalloc", "tcmalloc"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_program_has_no_allocator_of_its_own() {
    let mut files = Vec::new();
    for package in ["collector/src", "shared/src"] {
        sources(&checkout().join(package), &mut files);
    }
    assert!(files.iter().any(|file| file.ends_with("collector/src/main.rs")) && files.len() > 50, "{} files", files.len());
    for file in files {
        assert!(!fs::read_to_string(&file).unwrap().contains("global_allocator"), "{}", file.display());
    }
}

#[test]
fn no_allocator_is_among_the_packages() {
    let lock: toml::Table = fs::read_to_string(checkout().join("Cargo.lock")).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap();
    let names: Vec<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"tokscope-collector"), "{names:?}");
    let allocators: Vec<_> = names.iter().filter(|name| ALLOCATORS.iter().any(|allocator| name.contains(allocator))).collect();
    assert!(allocators.is_empty(), "{allocators:?}");
    // One that counts is for tests only.
    for package in ["collector", "shared"] {
        let manifest: toml::Table = fs::read_to_string(checkout().join(package).join("Cargo.toml")).unwrap().parse().unwrap();
        let used = manifest.get("dependencies").and_then(toml::Value::as_table);
        assert!(used.is_some_and(|used| !used.contains_key("allocation-counter")), "{package}");
    }
}
