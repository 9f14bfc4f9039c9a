//! Pictures of the page's views, for people to look at.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tokscope_tests::browser::{Browser, PageFile, Scheme};
use tokscope_tests::checkout;
use tokscope_tests::static_server::StaticServer;

const LIMIT: Duration = Duration::from_secs(20);

/// Drops TOKSCOPE_REPORT (else the seed) on the page, and saves what is seen in the folder TOKSCOPE_PICTURES.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "makes pictures to look at: set TOKSCOPE_PICTURES to a folder and run it by name"]
async fn pictures_of_every_view() {
    let folder = std::path::PathBuf::from(std::env::var_os("TOKSCOPE_PICTURES").unwrap());
    let report = std::env::var_os("TOKSCOPE_REPORT").map_or_else(|| checkout().join("shared/tests/fixtures/seed.json"), Into::into);
    let browser = Browser::start().await.unwrap();
    let server = StaticServer::start(&checkout().join("dist"), "/").await.unwrap();
    for (width, scheme) in [(1400, Scheme::Light), (1400, Scheme::Dark), (420, Scheme::Light), (420, Scheme::Dark)] {
        browser.set_view(width, 1000, scheme).await.unwrap();
        browser.open(&server.url()).await.unwrap();
        browser.wait_until("document.querySelector('[data-test=drop]') !== null", LIMIT).await.unwrap();
        let name = |view: &str| folder.join(format!("{view}-{width}-{scheme:?}.png"));
        browser.save_screenshot(&name("first")).await.unwrap();
        browser.drop_files(&[PageFile::read(&report).unwrap()]).await.unwrap();
        browser.wait_until("document.querySelector('[data-test=matrix]') !== null", LIMIT).await.unwrap();
        browser.save_screenshot(&name("report")).await.unwrap();
        browser.open("about:blank").await.unwrap();
    }
}
