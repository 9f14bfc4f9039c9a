//! That the browser harness itself sees what it is there to see. Its page is made here, not the viewer's.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use tokscope_tests::browser::{Browser, PageFile, Scheme};
use tokscope_tests::static_server::StaticServer;

const LIMIT: Duration = Duration::from_secs(20);

const PAGE: &str = r#"<!doctype html><link rel="icon" href="data:,"><meta name="color-scheme" content="light dark"><p id="out"></p><script>
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", async (event) => {
  event.preventDefault();
  const told = await Promise.all([...event.dataTransfer.files].map(async (file) => `${file.name}=${await file.text()}`));
  document.getElementById("out").textContent = told.join(" ");
});
</script>"#;

async fn page(folder: &Path, html: &str) -> (StaticServer, Browser) {
    std::fs::write(folder.join("index.html"), html).unwrap();
    let server = StaticServer::start(folder, "/").await.unwrap();
    let browser = Browser::start().await.unwrap();
    browser.open(&server.url()).await.unwrap();
    (server, browser)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn dropped_files_arrive_and_views_can_be_set() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, browser) = page(folder.path(), PAGE).await;
    let files = [PageFile::new("a.json", "{\"µ\":1}"), PageFile::new("b.txt", "")];
    browser.drop_files(&files).await.unwrap();
    browser.wait_until("document.getElementById('out').textContent !== ''", LIMIT).await.unwrap();
    assert_eq!(browser.text().await.unwrap(), "a.json={\"µ\":1} b.txt=");
    assert_eq!(browser.console_errors().await.unwrap(), [""; 0]);

    for (width, scheme) in [(420, Scheme::Dark), (1280, Scheme::Light)] {
        browser.set_view(width, 700, scheme).await.unwrap();
        let script = format!("return [innerWidth, matchMedia('(prefers-color-scheme: {scheme})').matches];");
        let seen = browser.run(&script).await.unwrap();
        assert_eq!(seen, serde_json::json!([width, true]));
        let png = browser.screenshot().await.unwrap();
        // A PNG's width stands in its header, big end first.
        assert_eq!(png[16..20], width.to_be_bytes());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn errors_and_foreign_requests_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let html = r#"<!doctype html><link rel="icon" href="data:,"><p>x</p><script>
console.error("told"); setTimeout(() => { throw new Error("thrown"); });
fetch("http://127.0.0.1:9/elsewhere").catch(() => { document.title = "done"; });
</script>"#;
    let (_server, browser) = page(folder.path(), html).await;
    browser.wait_until("document.title === 'done'", LIMIT).await.unwrap();
    let errors = browser.console_errors().await.unwrap().join("\n");
    assert!(errors.contains("told") && errors.contains("thrown"), "{errors}");
    let asked = browser.requests().await.unwrap();
    assert!(asked.iter().any(|url| url == "http://127.0.0.1:9/elsewhere"), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[cfg_attr(not(feature = "browser"), ignore = "drives Chromium; tests/run.sh runs it")]
async fn driver_and_browser_end_when_dropped() {
    let browser = Browser::start().await.unwrap();
    let (driver, chromium) = browser.process_ids();
    let running = |id: u64| Path::new(&format!("/proc/{id}")).exists();
    let chromium = chromium.unwrap();
    assert!(running(u64::from(driver)) && running(chromium));
    drop(browser);
    assert!(!running(u64::from(driver)));
    // Chromium is the driver's child, so it may be a process in name for a moment longer.
    let ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !running(chromium)
    });
    assert!(ended, "Chromium {chromium} still runs");
}
