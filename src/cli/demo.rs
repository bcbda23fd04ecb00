//! `foretide demo`: a back-test of an example as a picture, Foretide above a plain HPA; or the page of a simulated cluster.
//!
//! Decisions, forecasts and numbers of the picture are those of `foretide backtest` over demand that `scenario` generates.

mod picture;
mod scenario;
#[cfg(test)]
mod tests;
pub mod web;

use self::{picture::Picture, scenario::Scenario};
use super::{
    context::CommandContext,
    output::{CommandOutput, Failure},
    web::{self as pages, ListenArgs},
};
use foretide_page::http::PageSite;

/// Simulated seconds of the page that pass per second at speed 1.
const PAGE_SPEED: f64 = 60.0;

/// Arguments of `foretide demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Demand of the day that is shown
    #[arg(long = "scene", value_name = "SCENE", value_enum, default_value_t)]
    pub scenario: Scenario,
    #[command(flatten)]
    page: PageArgs,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PictureFormat,
}

/// The page instead of the picture.
#[derive(Debug, Clone, clap::Args)]
struct PageArgs {
    /// Serve the page with a simulated cluster until Ctrl-C, instead of drawing a picture
    #[arg(long, conflicts_with_all = ["scenario", "output", "ascii"])]
    web: bool,
    #[command(flatten)]
    at: ListenArgs,
    /// Speed of the simulated cluster: at 1, one of its minutes takes a second
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed, requires = "web")]
    speed: f64,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PictureFormat {
    /// The picture in characters, as large as the terminal
    #[default]
    Text,
    /// The picture as SVG
    Svg,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok();
    speed
        .filter(|speed| (0.01..=1000.0).contains(speed))
        .ok_or_else(|| format!("expected a factor from 0.01 to 1000, got {text:?}"))
}

/// Draws the picture, or serves the page until a signal.
///
/// # Errors
/// The address cannot be listened on.
pub fn run(args: &DemoArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    if args.page.web {
        return serve(&args.page, context);
    }
    let setup = args.scenario.setup(context)?;
    let picture = Picture::of(&setup, args.scenario);
    Ok(CommandOutput::text(match args.output {
        PictureFormat::Text => picture.text(context.screen.with_ascii(args.ascii)),
        PictureFormat::Svg => picture.chart().draw().svg(),
    }))
}

fn serve(args: &PageArgs, context: &CommandContext) -> Result<CommandOutput, Failure> {
    pages::run(async {
        let (page, simulation) = web::start(context, args.speed * PAGE_SPEED)?;
        let router = PageSite::open(page, context.machine.clock())
            .with_lab(pages::lab::routes(context))
            .router();
        pages::serve(args.at.listen, router, simulation, context.screen).await
    })
}
