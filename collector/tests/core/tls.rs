//! Streams over TLS, to a server with a certificate of its own making.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokscope_collector::clock::Clock;
use tokscope_collector::load::endpoint::Endpoint;
use tokscope_collector::load::health::StampSource;
use tokscope_collector::load::record::Outcome;
use tokscope_collector::load::request::RequestSource;
use tokscope_collector::load::{Load, StreamsOptions};
use tokscope_collector::target::{Address, Target, TargetOptions, TrustedRoots};

use crate::server::{DONE, STREAM_HEAD, event, finish, whole};
use crate::streams::{FAST, Plain};

struct TlsServer {
    addr: SocketAddr,
    /// Its certificate as PEM.
    pem: tempfile::NamedTempFile,
}

/// Answers every request on a connection: a list of models, or a stream of `events` in pieces of 7 bytes.
async fn start(events: u32) -> TlsServer {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let mut pem = tempfile::NamedTempFile::new().unwrap();
    pem.write_all(made.cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(socket).await else { return };
                let mut bytes = Vec::new();
                let mut piece = [0; 16_384];
                loop {
                    let n = tls.read(&mut piece).await.unwrap_or(0);
                    if n == 0 {
                        return;
                    }
                    bytes.extend_from_slice(&piece[..n]);
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let Some(end) = text.find("\r\n\r\n") else { continue };
                    let length = text.split("Content-Length: ").nth(1).and_then(|t| t.split('\r').next()?.parse().ok()).unwrap_or(0);
                    if bytes.len() < end + 4 + length {
                        continue;
                    }
                    bytes.clear();
                    let answer = if text.starts_with("GET /v1/models") {
                        whole("200 OK", "application/json", "{\"data\":[{\"id\":\"m\"}]}")
                    } else if text.starts_with("GET") {
                        whole("404 Not Found", "text/plain", "")
                    } else {
                        let events: String = (1..=events).map(|n| event("a", Some(n))).collect();
                        format!("{STREAM_HEAD}{events}{}{DONE}", finish()).into_bytes()
                    };
                    for part in answer.chunks(7) {
                        if tls.write_all(part).await.is_err() {
                            return;
                        }
                    }
                    let _ = tls.flush().await;
                }
            });
        }
    });
    TlsServer { addr, pem }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_over_tls_are_read_whole_on_kept_connections_and_say_whose_time_they_have() {
    let server = start(40).await;
    let address: Address = format!("https://localhost:{}", server.addr.port()).parse().unwrap();
    let roots = TrustedRoots::read(Some(server.pem.path())).unwrap();
    let endpoint = Arc::new(Endpoint::resolve(&address, &roots, FAST.connect).await.unwrap());
    let load = Load::start(Clock::start(), 1).unwrap();
    // A body of several records.
    let source: Arc<dyn RequestSource> = Arc::new(Plain::of(300_000));
    let options = StreamsOptions { count: 8, max_requests: Some(3), limits: FAST, max_tokens: 64, text: None };
    let streams = load.open(&endpoint, &source, &options).await;
    streams.start();
    tokio::time::timeout(Duration::from_secs(20), streams.ended()).await.expect("the streams end by themselves");
    let (records, health) = streams.join(Duration::from_secs(5)).await;
    for r in records.iter().flat_map(|record| &record.requests) {
        assert_eq!((r.outcome, r.usage_tokens, r.chunks), (Outcome::Finished, Some(40), 40), "{:?}", r.error);
    }
    assert!(records.iter().all(|record| record.requests.len() == 3));
    assert_eq!((health.connections_opened, health.connections_reused), (8, 16));
    assert!(matches!(&health.stamp, StampSource::Read(why) if why.contains("TLS")), "{:?}", health.stamp);
    assert_eq!(health.queue_delay, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_not_trusted_ends_the_stream_with_a_reason() {
    let server = start(1).await;
    let address: Address = format!("https://localhost:{}", server.addr.port()).parse().unwrap();
    let endpoint = Arc::new(Endpoint::resolve(&address, &TrustedRoots::default(), FAST.connect).await.unwrap());
    let load = Load::start(Clock::start(), 1).unwrap();
    let source: Arc<dyn RequestSource> = Arc::new(Plain::of(10));
    let options = StreamsOptions { count: 1, max_requests: Some(1), limits: FAST, max_tokens: 64, text: None };
    let streams = load.open(&endpoint, &source, &options).await;
    streams.start();
    streams.ended().await;
    let (records, _) = streams.join(Duration::from_secs(5)).await;
    let r = &records[0].requests[0];
    assert_eq!(r.outcome, Outcome::Connect);
    assert!(r.error.as_deref().unwrap().starts_with("no TLS with localhost"), "{:?}", r.error);
    assert_eq!(r.sent_us, None, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_an_own_authority_is_found_by_its_file_only() {
    let server = start(1).await;
    let options =
        |ca_cert| TargetOptions { host: format!("https://localhost:{}", server.addr.port()), ca_cert, ..TargetOptions::default() };
    let target = Target::detect(&options(Some(server.pem.path().to_owned())), &mut |_| {}).await.unwrap();
    assert_eq!(target.model, "m");
    assert!(Target::detect(&options(None), &mut |_| {}).await.is_err());
}
