//! Metrics in the formats of Prometheus. Nothing is stored here: a scrape reads the counters of all parts, so that
//! these do not know how they are exported.

mod gateway;
mod page;
mod plain;
mod process;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use self::page::MetricsPage;
use self::process::ProcessFigures;
use crate::faces::Faces;
use crate::faces::admin::{ExpositionFormat, Scrape};

/// All metrics of the program.
pub(in crate::app) struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Creates the metrics of `faces`, of their gateway and of the process.
    pub(in crate::app) fn of(faces: &Arc<Faces>) -> Metrics {
        let mut registry = Registry::default();
        let everything = Everything { faces: Arc::clone(faces), process: ProcessFigures::begin() };
        registry.register_collector(Box::new(everything));
        Metrics { registry }
    }

    /// Returns the function that answers `/metrics`.
    pub(in crate::app) fn into_scrape(self) -> Arc<Scrape> {
        Arc::new(move |format| self.scrape(format))
    }

    fn scrape(&self, format: ExpositionFormat) -> String {
        let mut text = String::new();
        if let Err(fmt::Error) = text::encode(&mut text, &self.registry) {
            tracing::error!("a metric could not be written");
        }
        match format {
            ExpositionFormat::OpenMetrics => text,
            ExpositionFormat::Plain => plain::from_openmetrics(&text),
        }
    }
}

struct Everything {
    faces: Arc<Faces>,
    process: ProcessFigures,
}

impl fmt::Debug for Everything {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Everything")
    }
}

impl Collector for Everything {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = MetricsPage(encoder);
        let build = vec![("version", env!("CARGO_PKG_VERSION"))];
        page.gauges("mcpproxy_build_info", "Which version this is; always 1", [(build, 1.0)])?;
        gateway::write(&self.faces, &mut page)?;
        self.process.write(&mut page)
    }
}
