//! Images that are there: listed, described and let go.
#![allow(unreachable_pub)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::v1;

use super::Spec;
use super::support::{DEADLINE, Feature, IMAGE, Subject};

pub const SPECS: &[Spec] = &[
    ("listImage should get the images that are there", |it| Box::pin(listing(it))),
    ("image status should tell an image by name and by id, and know when there is none", |it| {
        Box::pin(status(it))
    }),
    ("removing an image that is not there is no error", |it| Box::pin(removal(it))),
    ("runtime should tell what images take", |it| Box::pin(fs_info(it))),
];

const NONE: &str = "test.local/nobody:1";

fn named(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() })
}

async fn listing(subject: Arc<Subject>) {
    let list = async |filter: Option<v1::ImageFilter>| {
        subject.images.list_images(v1::ListImagesRequest { filter }).await.unwrap().images
    };
    let all = list(None).await;
    let image = all.iter().find(|image| image.repo_tags.iter().any(|tag| tag == IMAGE)).unwrap();
    assert!(image.id.starts_with("sha256:") && image.size > 1 << 20, "{image:?}");
    if !subject.has(Feature::ImageFilters) {
        return;
    }
    let filtered = list(Some(v1::ImageFilter { image: named(IMAGE) })).await;
    assert_eq!(filtered.iter().map(|image| &image.id).collect::<Vec<_>>(), [&image.id]);
    assert_eq!(list(Some(v1::ImageFilter { image: named(NONE) })).await, []);
}

async fn status(subject: Arc<Subject>) {
    let status = async |image: &str, verbose: bool| {
        let request = v1::ImageStatusRequest { image: named(image), verbose };
        subject.images.image_status(request).await.unwrap()
    };
    let by_name = status(IMAGE, true).await;
    assert!(by_name.info.contains_key("info"), "{:?}", by_name.info);
    let image = by_name.image.unwrap();
    assert_eq!(status(&image.id, false).await.image.unwrap().repo_tags, image.repo_tags);
    assert_eq!(status(NONE, false).await.image, None);
}

async fn removal(subject: Arc<Subject>) {
    let request = v1::RemoveImageRequest { image: named(NONE) };
    subject.images.remove_image(request).await.unwrap();
}

async fn fs_info(subject: Arc<Subject>) {
    let started = Instant::now();
    loop {
        let info = subject.images.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap();
        let [layers] = info.image_filesystems.as_slice() else { panic!("{info:?}") };
        let folder = Path::new(&layers.fs_id.as_ref().unwrap().mountpoint);
        assert!(folder.is_dir() && folder.starts_with(&subject.folder), "{folder:?}");
        assert!(layers.timestamp > 0);
        let used = [layers.used_bytes, layers.inodes_used].map(|value| value.map_or(0, |it| it.value));
        // The image has busybox twice. containerd measures now and then.
        if used[0] > 1 << 20 && used[1] > 10 {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{info:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
