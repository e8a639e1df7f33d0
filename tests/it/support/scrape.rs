//! `/metrics`, read as a scraper reads it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::gateway::Gateway;
use super::wait::eventually;

/// The setting that opens the operator's listener on any free port.
pub const ADMIN: (&str, &str) = ("MCPPROXY__SERVER__ADMIN_LISTEN", "127.0.0.1:0");
/// Where the gateway says that it is.
const SAID: &str = "metrics are at ";

/// One line of it.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct Page {
    /// As it came.
    pub text: String,
    pub samples: Vec<Sample>,
}

impl Page {
    /// Reads a page in the plain format. Panics at whatever is not in it.
    pub fn read(text: &str) -> Page {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        Page { text: text.to_owned(), samples: lines.map(sample).collect() }
    }

    /// What all samples of this name with these labels, and any others, add up to.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| {
                    sample.labels.get(*label).map_or(value.is_empty(), |found| found == value)
                })
        };
        self.samples.iter().filter(has).map(|sample| sample.value).sum()
    }
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').unwrap();
    let pairs = labels.split("\",").filter(|pair| !pair.is_empty()).map(|pair| {
        let (label, value) = pair.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        (label.to_owned(), value.trim_end_matches('"').to_owned())
    });
    Sample { name: name.to_owned(), labels: pairs.collect(), value }
}

impl Gateway {
    /// The address of the operator's listener, which [`ADMIN`] opens.
    pub fn admin_url(&self) -> String {
        let log = self.log();
        let (_, at) = log.split_once(SAID).expect("a listener");
        at.split_once("/metrics").unwrap().0.to_owned()
    }

    /// What it says of itself now.
    pub async fn scrape(&self) -> Page {
        let answer = self.anonymous().at(&self.admin_url()).get("/metrics").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        Page::read(&answer.text)
    }

    /// Scrapes until it says this.
    pub async fn scrape_until(&self, what: &str, holds: impl Fn(&Page) -> bool) -> Page {
        eventually(what, Duration::from_secs(15), || async {
            let page = self.scrape().await;
            holds(&page).then_some(page)
        })
        .await
    }
}
