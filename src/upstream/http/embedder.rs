//! Client of an embeddings service: any endpoint with OpenAI's API (`POST {model, input}`).
//!
//! The operator names the endpoint, so its address needs no entry in `egress.allow`. Its connections and its egress
//! guard are separate, so tenants gain no access by it. Its answers are as untrusted as those of any upstream.

mod question;

pub use self::question::{Patience, Question};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode, Uri};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::domain::search::{DIMS_MAX, Embedding};
use crate::upstream::admission::egress::Egress;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::post::{Http, read_all};
use crate::upstream::http::wires::{Timeouts, Wires};

/// Most open connections, for questions that callers wait for, for late ones, and for definitions.
const CONNECTIONS_MAX: usize = 16;
/// Most questions at a time whose answer is read although their wait has ended.
const LATE_MAX: usize = 4;
/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(30);
/// Longest number in an answer, its comma included, in bytes.
const NUMBER_BYTES_MAX: usize = 32;
/// Most bytes of an answer besides its numbers.
const REST_BYTES_MAX: usize = 64 * 1024;
/// Largest answer that is parsed on the caller's thread, in bytes; larger ones are parsed on a blocking thread.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// Endpoint, model and timeouts of an embeddings service.
#[derive(Clone)]
pub struct EmbedderOptions {
    /// URL of the endpoint.
    pub url: String,
    /// Name of the model, as the service knows it.
    pub model: String,
    /// API key, sent as `Authorization: Bearer`; `None` sends no such header.
    pub api_key: Option<String>,
    /// Longest time to open a connection.
    pub connect_timeout: Duration,
    /// Longest time of one request in all.
    pub timeout: Duration,
}

impl fmt::Debug for EmbedderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbedderOptions")
            .field("url", &self.url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Reason why there are no vectors. The text names no key and repeats nothing that was sent or answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbedError {
    /// The endpoint did not answer.
    #[error("the embeddings endpoint gave no answer: {}", .0.whole())]
    NoAnswer(UpstreamError),
    /// The endpoint answered with this status instead of 200.
    #[error("the embeddings endpoint answered HTTP {}", .0.as_u16())]
    Status(StatusCode),
    /// The answer is not one vector for each text; says what is wrong with it.
    #[error("the embeddings endpoint's answer {0}")]
    Answer(&'static str),
}

/// Cause of a failure, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service does not take these texts, but may well take others.
    Texts,
    /// The cause may be these texts or the service. Services crash, hang or answer nonsense for some texts, and
    /// firewalls refuse texts that look like an attack.
    Unclear,
    /// The service would fail with any text.
    Service,
}

impl EmbedError {
    /// Returns the cause of the failure, as far as it can be known.
    pub fn fault(&self) -> Fault {
        match self {
            EmbedError::Status(status) => match status.as_u16() {
                400 | 413 | 422 => Fault::Texts,
                403 | 408 | 500..=599 => Fault::Unclear,
                _ => Fault::Service,
            },
            EmbedError::Answer(_) => Fault::Unclear,
            EmbedError::NoAnswer(error) => match error.kind {
                FailureKind::Timeout | FailureKind::Lost | FailureKind::Invalid | FailureKind::TooLarge => {
                    Fault::Unclear
                }
                _ => Fault::Service,
            },
        }
    }
}

/// Client of an embeddings service.
pub struct Embedder {
    http: Http,
    headers: HeaderMap,
    model: String,
    timeout: Duration,
    /// Circuit breaker for the questions of all tenants.
    patience: Patience,
    late: Semaphore,
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder").field("model", &self.model).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl Embedder {
    /// Creates the client; the first request opens a connection.
    ///
    /// # Errors
    /// If the URL is refused, or if the URL or the API key cannot be sent.
    pub fn new(
        options: &EmbedderOptions,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Embedder, UpstreamError> {
        let everywhere = vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let dialer = Dialer::new(Arc::new(Egress::new(everywhere, Vec::new())), tls);
        let uri = dialer.check_url(&options.url)?;
        let headers = headers(&uri, options.api_key.as_deref())?;
        let target = uri.path_and_query().map_or("/", |path| path.as_str()).parse();
        let target = target.map_err(|_| unsendable("the path is no path"))?;
        let timeouts = Timeouts { connect: options.connect_timeout, idle: IDLE };
        Ok(Embedder {
            http: Http {
                wires: Arc::new(Wires::new(dialer, uri, CONNECTIONS_MAX, timeouts)),
                target,
                login: None,
            },
            headers,
            model: options.model.clone(),
            timeout: options.timeout,
            patience: Patience::default(),
            late: Semaphore::new(LATE_MAX),
        })
    }

    /// Returns the vectors of `texts`, in the same order.
    ///
    /// # Errors
    /// If there is no answer, or anything but one vector for each text, all of the same length.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Embedding>, EmbedError> {
        let request = Request { model: &self.model, input: texts, encoding_format: "float" };
        let body = serde_json::to_vec(&request).map_err(|_| EmbedError::Answer("was not asked for"))?;
        let count = texts.len();
        let exchange = self.exchange(body.into(), count);
        let bytes = timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(EmbedError::NoAnswer(UpstreamError::timeout(true))))?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return read_answer(&bytes, count);
        }
        tokio::task::spawn_blocking(move || read_answer(&bytes, count))
            .await
            .unwrap_or(Err(EmbedError::Answer("could not be read")))
    }

    async fn exchange(&self, body: Bytes, count: usize) -> Result<Bytes, EmbedError> {
        match self.post(body.clone(), count).await {
            // the endpoint may just have closed an idle connection; asking twice does no harm
            Err(EmbedError::NoAnswer(error)) if error.kind == FailureKind::Lost => {
                self.post(body, count).await
            }
            ended => ended,
        }
    }

    async fn post(&self, body: Bytes, count: usize) -> Result<Bytes, EmbedError> {
        let sent = AtomicBool::new(false);
        let exchanged = self.http.exchange(Method::POST, self.headers.clone(), body, &sent).await;
        let (mut lease, response) = exchanged.map_err(EmbedError::NoAnswer)?;
        let status = response.status();
        if status != StatusCode::OK {
            // the connection ends with the unread body
            return Err(EmbedError::Status(status));
        }
        let mut body = response.into_body();
        let bytes_max = count.saturating_mul(DIMS_MAX * NUMBER_BYTES_MAX) + REST_BYTES_MAX;
        let bytes = read_all(&mut lease, &mut body, bytes_max, None).await.map_err(EmbedError::NoAnswer)?;
        lease.give_back();
        Ok(bytes)
    }
}

fn headers(uri: &Uri, api_key: Option<&str>) -> Result<HeaderMap, UpstreamError> {
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| unsendable("the host is no host"))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(crate::upstream::target::USER_AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = api_key {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut value = value.map_err(|_| unsendable("the key cannot be sent"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn unsendable(why: &'static str) -> UpstreamError {
    UpstreamError::unsent(FailureKind::Unsendable, why)
}

fn read_answer(bytes: &[u8], count: usize) -> Result<Vec<Embedding>, EmbedError> {
    let answer: Answer =
        serde_json::from_slice(bytes).map_err(|_| EmbedError::Answer("is not of OpenAI's form"))?;
    if answer.data.len() != count {
        return Err(EmbedError::Answer("has not one vector for each text"));
    }
    let mut places: Vec<Option<Embedding>> = vec![None; count];
    for (at, item) in answer.data.into_iter().enumerate() {
        let vector = Embedding::of(&item.embedding)
            .ok_or(EmbedError::Answer("has a vector without a direction, or with too many numbers"))?;
        let place = places.get_mut(item.index.unwrap_or(at)).filter(|place| place.is_none());
        *place.ok_or(EmbedError::Answer("has not one vector for each text"))? = Some(vector);
    }
    let vectors: Vec<Embedding> = places.into_iter().flatten().collect();
    let dims = vectors.first().map(Embedding::dims);
    if vectors.iter().any(|vector| Some(vector.dims()) != dims) {
        return Err(EmbedError::Answer("has vectors of different length"));
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_vector_for_each_text() {
        let vectors = |text: &str, count| read_answer(text.as_bytes(), count);
        let two = r#"{"object":"list","data":[{"index":1,"embedding":[0,1]},{"index":0,"embedding":[1,0]}],"usage":{}}"#;
        let expected = [Embedding::of(&[1.0, 0.0]).unwrap(), Embedding::of(&[0.0, 1.0]).unwrap()];
        assert_eq!(vectors(two, 2).unwrap(), expected);
        let unnumbered = r#"{"data":[{"embedding":[1,0]},{"embedding":[0,1]}]}"#;
        assert_eq!(vectors(unnumbered, 2).unwrap(), expected);
        for (bad, count) in [
            (two, 1),
            (two, 3),
            ("", 1),
            ("[]", 0),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#, 2),
            (r#"{"data":[{"index":2,"embedding":[1]},{"index":0,"embedding":[1]}]}"#, 2),
            (r#"{"data":[{"embedding":[1,2]},{"embedding":[1]}]}"#, 2),
            (r#"{"data":[{"embedding":[0,0]}]}"#, 1),
            (r#"{"data":[{"embedding":[]}]}"#, 1),
            (r#"{"data":[{"embedding":[1e999]}]}"#, 1),
            (r#"{"data":[{"embedding":[NaN]}]}"#, 1),
            (r#"{"data":[{"embedding":"AAAA"}]}"#, 1),
        ] {
            assert!(vectors(bad, count).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_shows_the_key() {
        let options = EmbedderOptions {
            url: "https://embeddings.example/v1/embeddings".to_owned(),
            model: "m".to_owned(),
            api_key: Some("hunter2".to_owned()),
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
        };
        let embedder = Embedder::new(&options, None).unwrap();
        assert!(!format!("{options:?} {embedder:?} {:?}", embedder.headers).contains("hunter2"));
    }
}
