//! The set-up scripts on a machine that has nothing: they name all that is missing, and change nothing.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tokscope_tests::checkout;

/// What every system has, as far as the scripts need it.
const BASICS: [&str; 12] = ["awk", "bash", "cat", "cut", "dirname", "env", "grep", "mkdir", "readlink", "sed", "sort", "tr"];

/// A folder that, as PATH, makes a bare machine: the basics, and a cargo that does nothing well.
fn bare_machine() -> tempfile::TempDir {
    let bare = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for name in BASICS {
        let real = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        symlink(real.unwrap(), bare.path().join(name)).unwrap();
    }
    let cargo = bare.path().join("cargo");
    fs::write(&cargo, "#!/usr/bin/env bash\nexit 101\n").unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    bare
}

fn run(script: &Path, arguments: &[&str], bare: &Path) -> Output {
    // Through bash and not by itself: a script that was written a moment ago may still be open in a process that
    // another test is about to start, and such a file can't be executed.
    Command::new("bash")
        .arg(script)
        .args(arguments)
        .env_clear()
        .env("PATH", bare)
        .env("HOME", bare)
        .env("TOKSCOPE_TOOLS", bare.join("tools"))
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn script(path: &str) -> PathBuf {
    checkout().join(path)
}

#[test]
fn a_bare_machine_is_told_everything_that_is_missing_at_once() {
    let bare = bare_machine();
    let output = run(&script("tests/run.sh"), &[], bare.path());
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for item in [
        "C linker",
        "rustfmt",
        "clippy",
        "wasm32-unknown-unknown",
        "trunk 0.21.14",
        "wasm-opt 132",
        "brotli",
        "Chromium",
        "chromedriver",
        "--install",
    ] {
        assert!(told.contains(item), "{item} is not named:\n{told}");
    }
    let lock = fs::read_to_string(checkout().join("Cargo.lock")).unwrap();
    let version = lock.split("name = \"wasm-bindgen\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(told.contains(&format!("wasm-bindgen {version}")), "wasm-bindgen {version} is not named:\n{told}");
    let installed = fs::read_dir(bare.path().join("tools/bin")).unwrap().count();
    assert_eq!(installed, 0);
}

#[test]
fn without_the_page_only_the_native_tools_are_asked_for() {
    let bare = bare_machine();
    let told = stderr(&run(&script("tests/run.sh"), &["--quick"], bare.path()));
    assert!(told.contains("rustfmt") && !told.contains("trunk"), "{told}");
}

#[test]
fn unknown_options_are_refused_with_the_usage() {
    let bare = bare_machine();
    for path in ["tests/run.sh", "tests/build-dist.sh"] {
        let output = run(&script(path), &["--everything"], bare.path());
        let told = stderr(&output);
        assert!(!output.status.success(), "{path}");
        assert!(told.contains("--everything") && told.contains("usage"), "{told}");
    }
}

#[test]
fn continuous_integration_without_the_real_reports_says_where_they_belong() {
    let bare = bare_machine();
    let place = bare.path().join("checkout/.ci");
    fs::create_dir_all(&place).unwrap();
    fs::copy(script(".ci/run"), place.join("run")).unwrap();
    let output = run(&place.join("run"), &[], bare.path());
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("../shared/reports"), "{told}");
}
