//! What operators say of the controllers, as these read it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use cli::controller_manager::OptionArgs;
use controller::{Controller, Engine, Informers};
use controllers::options::Options;
use serde_json::Value;

/// What counts for the controllers of a process.
#[derive(Clone)]
pub(super) struct ControllerOptions {
    options: Options,
    workers: BTreeMap<&'static str, usize>,
}

impl ControllerOptions {
    /// Reads what flags say, and tells of those that do nothing.
    ///
    /// # Errors
    /// If a value is not what a controller takes.
    pub(super) fn read(args: &OptionArgs) -> Result<Self> {
        for (flag, why) in &args.without_effect {
            tracing::warn!(flag, why, "the flag is accepted, and does nothing");
        }
        let options = serde_json::from_value(Value::Object(args.fields.clone()));
        let options = options.context("read the options of the controllers")?;
        Ok(Self { options, workers: args.workers.clone() })
    }

    /// An engine for controllers that do as these options say.
    pub(super) fn engine(&self, informers: Informers) -> Engine {
        informers.setting_or(|| self.options.clone());
        controllers::set_transforms(&informers);
        Engine::new(informers, "controllermanager")
            .with_workers(self.workers.clone())
            .with_request_metrics(controllers::metrics::request_metrics)
    }

    /// Waits until the controller may start, if it is to run; what there is of its objects is shown from then on.
    pub(super) async fn admits(&self, controller: &Controller, informers: &Informers) -> bool {
        if controller.name == controllers::garbage_collector::CONTROLLER.name
            && !self.options.enable_garbage_collector
        {
            return false;
        }
        tokio::time::sleep(self.options.controller_start_interval.0).await;
        informers.show(controllers::metrics::gauges(controller.name));
        true
    }
}

#[cfg(test)]
mod tests {
    use cli::controller_manager::{Effect, FLAGS};
    use serde_json::Map;

    use super::*;

    /// A flag that acts has a field of its name in the controllers' options, and the same default.
    #[test]
    fn what_the_flags_say_is_what_the_controllers_read() {
        let acting = FLAGS.iter().filter(|flag| flag.effect == Effect::Acts);
        let defaults: Map<String, Value> =
            acting.map(|flag| (flag.name.to_owned(), flag.read(flag.default).unwrap())).collect();
        assert_eq!(serde_json::to_value(Options::default()).unwrap(), Value::Object(defaults.clone()));
        let args = OptionArgs { fields: defaults, ..OptionArgs::default() };
        assert_eq!(ControllerOptions::read(&args).unwrap().options, Options::default());
    }

    #[test]
    fn workers_are_those_of_controllers_that_there_are() {
        for flag in FLAGS {
            let Effect::Workers(name) = flag.effect else { continue };
            assert!(controllers::every().any(|row| row.name == name), "{}: {name}", flag.name);
        }
    }
}
