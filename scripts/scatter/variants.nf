#!/usr/bin/env nextflow
// Score a VCF by region, each region in a task of its own, and join the parts (docs/scale.md):
//   nextflow run scripts/scatter/variants.nf --vcf in.vcf.gz --reference ref.fa --model yeast \
//     --regions regions.bed --output scored.vcf.gz
// Needs bcftools. A record is in the region that holds its POS, so each record is in one part.
nextflow.enable.dsl = 2

params.options = ''

process SCORE {
    errorStrategy 'retry'
    maxRetries 2
    cpus 1

    input:
    tuple val(number), val(region)
    path vcf
    path reference

    output:
    tuple val(number), path("${number}.vcf.gz"), path("${number}.json")

    script:
    """
    OMP_NUM_THREADS=${task.cpus} carbon variants --model ${params.model} \\
      --reference ${reference} --vcf ${vcf} --region ${region} \\
      --output ${number}.vcf.gz ${params.options} > ${number}.json
    """
}

process JOIN {
    publishDir '.', mode: 'copy'

    input:
    path parts
    path summaries

    output:
    path "${params.output}*"

    script:
    """
    bcftools concat --naive --output ${params.output} ${parts}
    bcftools index --tbi ${params.output}
    carbon join --output ${params.output}.json ${summaries}
    """
}

workflow {
    number = 0
    regions = Channel.fromPath(params.regions)
        .splitCsv(sep: '\t')
        .map { row -> tuple(number++, "${row[0]}:${(row[1] as long) + 1}-${row[2]}") }
    scored = SCORE(regions, file(params.vcf), file(params.reference))
    inOrder = scored.toSortedList { left, right -> left[0] <=> right[0] }
    JOIN(inOrder.map { all -> all*.getAt(1) }, inOrder.map { all -> all*.getAt(2) })
}
